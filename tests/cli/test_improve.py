"""`skiplens improve`: the report, the code and the weights it leaves, and that a second call goes on."""

import json
import sys
from dataclasses import replace

import pytest
import torch
from typer.testing import CliRunner

import skiplens.improvement
from skiplens.base.errors import SkiplensError
from skiplens.cli.main import app
from skiplens.improvement.plan import Change
from skiplens.report import Report
from skiplens.trainability import Forecast

SOURCE = """
import torch
from torch import nn
def build():
    torch.manual_seed(0)
    layers = [part for _ in range(8) for part in (nn.Linear(12, 12), nn.ReLU())]
    model = nn.Sequential(*layers, nn.Linear(12, 2)).float()
    for parameter in model.parameters():
        parameter.data.mul_(0.3)
    return model
def data():
    inputs = torch.randn(256, 12, generator=torch.Generator().manual_seed(0), dtype=torch.float32)
    return inputs, (inputs[:, 0] > 0).long()
"""


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "mine.py"
    path.write_text(SOURCE)
    return path


def run(file, *words):
    asked = ["improve", f"{file}:build", "--data", f"{file}:data", "--steps", "80", "--cost", "300"]
    return CliRunner().invoke(app, [*asked, *map(str, words)])


@pytest.mark.slow
def test_the_folder_holds_report_code_and_weights(file, tmp_path):
    done = run(file, "--out", tmp_path / "out")
    assert done.exit_code == 0, done.output
    assert "instead of" in done.output, done.output
    assert "What was tried" not in done.output and "trainings' worth of steps" in done.output
    assert "Why: " in done.output and "What was tried" in run(file, "--out", tmp_path / "out", "--full").output
    report = Report.load(tmp_path / "out")
    assert report.verdict.split(":")[0][:40] in " ".join(done.output.split())
    assert [section.title for section in report.sections()] == ["Improvement", "Forecast of the changed network"]
    pasted = {}
    exec(SOURCE, pasted)
    pasted = {"model": pasted["build"](), "inputs": pasted["data"]()[0]}
    pasted["optimizer"] = torch.optim.Adam(pasted["model"].parameters())
    exec((tmp_path / "out/change.py").read_text(), pasted)
    weights = torch.load(tmp_path / "out/model.pt", weights_only=True)
    assert all(torch.equal(weights[name], value) for name, value in pasted["model"].state_dict().items())
    parts = sorted((tmp_path / "out/parts").iterdir())
    written = [part.stat().st_mtime_ns for part in parts]
    again = run(file, "--out", tmp_path / "out", "--json")
    assert again.exit_code == 0 and json.loads(again.stdout)["kind"] == "improvement"
    assert [part.stat().st_mtime_ns for part in sorted((tmp_path / "out/parts").iterdir())] == written


def test_what_an_earlier_call_left_does_not_stay(file, tmp_path, monkeypatch):
    monkeypatch.setattr(
        sys.modules["skiplens.improvement.improve"], "WORTH", float("inf")
    )  # no falling rate is worth it
    monkeypatch.setattr("skiplens.improvement.search.WORTH", float("inf"))  # and no change
    for name in ("change.py", "model.pt"):
        (tmp_path / name).write_text("of another model")
    done = run(file, "--out", tmp_path, "--keep", "outputs", "--cost", "140")
    assert done.exit_code == 0 and "as well as anything tried" in done.output and "What was tried" in done.output
    assert not (tmp_path / "change.py").exists() and not (tmp_path / "model.pt").exists()


@pytest.mark.parametrize(("names", "after"), [((), False), (("cool_down",), False), (("he", "cool_down"), True)])
def test_the_report_has_the_forecast_of_what_is_handed_over(file, tmp_path, monkeypatch, names, after):
    def found(model, data, **asked):
        better = improve(model, data, **asked | {"cost": 140})
        changes = tuple(Change(name, "start", "", "") for name in names)
        before, later = (replace(better.before, loss=loss) for loss in (2.0, 1.0))
        return replace(better, changes=changes, before=before, after=later)

    improve = skiplens.improvement.improve
    monkeypatch.setattr(skiplens.improvement, "improve", found)
    done = run(file, "--out", tmp_path, "--keep", "outputs")
    assert done.exit_code == 0, done.output
    report, whose = Report.load(tmp_path), "the changed network" if after else "the network as it was"
    assert report.reading(Forecast).loss == (1.0 if after else 2.0)
    assert report.sections()[-1].title == f"Forecast of {whose}"


def test_bad_input_is_one_line(file, tmp_path):
    for words in (("--keep", "everything"), ("--optimizer", "adm"), ("--cost", "3")):
        done = run(file, "--out", tmp_path / "out", *words)
        assert isinstance(done.exception, SkiplensError), done.output
        assert "Settings" not in str(done.exception)
    assert "--keep must be one of outputs" in str(run(file, "--keep", "everything").exception)
    assert not (tmp_path / "out/report.html").exists()
