import json
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from skiplens.base.version import VERSION
from skiplens.cli.main import app

SMALL = "zoo:shortcut_linear,units=2,width=784"


@pytest.fixture
def model_file(tmp_path):
    """A user's own model and data in a file."""
    path = tmp_path / "mine.py"
    path.write_text(
        "import torch\n"
        "from torch import nn\n"
        "class Block(nn.Module):\n"
        "    def __init__(self):\n"
        "        super().__init__()\n"
        "        self.branch = nn.Linear(4, 4)\n"
        "    def forward(self, x):\n"
        "        return x + self.branch(x)\n"
        "def build(): return nn.Sequential(Block(), Block(), nn.Linear(4, 2)).double()\n"
        "def chain(): return nn.Linear(4, 2).double()\n"
        "def data(): return torch.randn(8, 4, dtype=torch.float64), torch.arange(8) % 2\n"
        "def wide(): return torch.randn(8, 5, dtype=torch.float64), torch.arange(8) % 2\n"
    )
    return path


def run(*words: str):
    return CliRunner().invoke(app, [str(word) for word in words])


def test_version_and_help():
    assert run("--version").output.strip() == f"skiplens {VERSION}"
    text = run("--help").output
    assert all(verb in text for verb in ("inspect", "zoo", "data")) and "Exit status" in text
    for words in (["inspect"], ["zoo"], ["data", "list"], ["data", "get"]):
        assert "Example: skiplens" in run(*words, "--help").output


def test_inspect_writes_the_folder_and_says_where(model_file, tmp_path):
    out = tmp_path / "out"
    done = run("inspect", f"{model_file}:build", "--data", f"{model_file}:data", "--out", out, "--full")
    assert done.exit_code == 0, done.output
    assert "2 residual blocks" in done.output and "report.html" in done.output
    # eight samples of four features: a linear network's kernel has rank five at most, which is no fault
    assert "The tangent kernel is singular" in done.output and "Warning: The tangent kernel" not in done.output
    assert (out / "report.html").stat().st_size > 10_000
    readings = {reading["kind"]: reading for reading in json.loads((out / "readings.json").read_text())["readings"]}
    assert len(readings["structure"]["values"]["block_names"]) == 2
    assert f"\n{readings['forecast']['values']['word'].capitalize()}: after 400 steps" in done.output


@pytest.mark.slow
def test_without_full_only_verdict_and_findings_are_printed(model_file, tmp_path, ran):
    asked = ("inspect", f"{model_file}:build", "--data", f"{model_file}:data", "--lens", "signal", "--out", tmp_path)
    status, short, progress = ran(*asked)
    _, whole, _ = ran(*asked, "--full")
    assert status == 0 and "--full" in short and "Signal and gradient" not in short and "Signal and gradient" in whole
    assert len(short.splitlines()) < len(whole.splitlines())
    lines = progress.splitlines()
    assert len(lines) == len(set(lines)), "one line a step"


@pytest.mark.slow
@pytest.mark.parametrize(("severity", "status"), [("warning", 1), ("critical", 0)])
def test_a_pipeline_can_stop_at_a_finding(severity, status, tmp_path, ran, monkeypatch):
    from skiplens.report import inspection
    from tests.report.test_findings_section import finding

    monkeypatch.setattr(inspection, "find", lambda *given: (finding("warning"), finding("note")))
    done, _, _ = ran("inspect", "--lens", "structure", "--out", tmp_path, "--fail-on", severity)
    assert done == status and (tmp_path / "report.html").exists()


def test_a_folder_that_cannot_be_written_is_told_before_anything_is_measured(model_file, ran):
    out = model_file / "below_a_file"
    status, _, complaint = ran("inspect", f"{model_file}:missing", "--out", out)
    assert status == 2 and f"Nothing can be written to {out}: Not a directory." in " ".join(complaint.split())


def test_inspect_answers_machines_in_json(model_file, tmp_path, ran):
    lens = ("--lens", "structure", "--out", tmp_path / "o", "--json")
    status, out, _ = ran("inspect", f"{model_file}:build", "--data", f"{model_file}:data", *lens)
    assert status == 0
    assert json.loads(out)["title"] == f"{model_file}:build"


def test_a_plain_chain_is_reported_as_one(model_file, tmp_path):
    lens = ("--lens", "structure", "--out", tmp_path / "o")
    done = run("inspect", f"{model_file}:chain", "--data", f"{model_file}:data", *lens)
    assert done.exit_code == 0 and "is a plain chain" in done.output


def test_settings_come_from_a_file_and_flags_go_before_it(model_file, tmp_path):
    settings = tmp_path / "settings.json"
    settings.write_text(
        json.dumps({"model": f"{model_file}:chain", "data": f"{model_file}:data", "lens": ["structure"]})
    )
    base = ("inspect", "--settings", settings, "--out", tmp_path / "o")
    assert "plain chain" in run(*base).output
    assert "2 residual blocks" in run(*base, f"{model_file}:build").output


def test_no_colour_in_a_log_file(monkeypatch, ran):
    monkeypatch.setenv("TERM", "xterm-256color")
    status, out, _ = ran("zoo")
    assert status == 0 and "\x1b" not in out
    assert "preact_resnet18" in out


@pytest.mark.parametrize("command", [[Path(sys.executable).with_name("skiplens")], [sys.executable, "-m", "skiplens"]])
def test_the_installed_command_and_the_module_are_the_same(command):
    done = subprocess.run([*command, "inspect", "zoo:resnt"], capture_output=True, text=True)
    assert done.returncode == 2 and "The zoo has no network 'resnt'" in done.stderr


def test_the_help_of_the_module_calls_it_skiplens():
    done = subprocess.run([sys.executable, "-m", "skiplens", "inspect", "--help"], capture_output=True, text=True)
    assert done.returncode == 0 and "Usage: skiplens inspect" in done.stdout and "__main__" not in done.stdout


def test_zoo_and_data_answer_machines_in_json():
    zoo = json.loads(run("zoo", "--json").output)
    assert {"name", "parameters", "depth", "joins"} <= set(zoo[0])
    assert {row["name"] for row in json.loads(run("data", "list", "--json").output)} >= {"sample", "mnist", "cifar10"}


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["inspect", "zoo:resnt"], "The zoo has no network 'resnt'"),
        (["inspect", "absent.py:build"], "There is no file absent.py"),
        (["inspect", "--lens", "pathz"], "There is no lens 'pathz'"),
        (["inspect", "--data", "no-such-data"], "no-such-data"),
        (["inspect", "--weights", "absent.safetensors"], "There is no file of weights"),
        (["data", "get", "mnits"], "Did you mean mnist"),
    ],
)
def test_bad_input_is_one_sentence_and_status_2(words, message, tmp_path, ran):
    status, out, err = ran(*words, *(["--out", tmp_path / "out"] if words[0] == "inspect" else []))
    assert status == 2
    assert err.startswith("error: ") and message in err
    assert "Traceback" not in err and out == ""
    assert not (tmp_path / "out").exists()


def test_an_unknown_key_in_a_settings_file_is_named(tmp_path, ran):
    settings = tmp_path / "settings.json"
    settings.write_text('{"modle": "zoo:default"}')
    status, _, err = ran("inspect", "--settings", settings)
    assert status == 2 and "no setting 'modle'. Did you mean model" in err


@pytest.mark.parametrize(("content", "message"), [("{", "is not JSON"), ("[]", "must hold one JSON object")])
def test_a_broken_settings_file_is_named(tmp_path, content, message, ran):
    settings = tmp_path / "settings.json"
    settings.write_text(content)
    status, _, err = ran("inspect", "--settings", settings)
    assert status == 2 and message in err


def test_inputs_of_the_wrong_shape_are_explained(model_file, tmp_path, ran):
    words = ("inspect", f"{model_file}:build", "--data", f"{model_file}:wide", "--out", tmp_path / "o")
    status, _, err = ran(*words)
    assert status == 2
    assert "cannot be called with these inputs: float64 tensor of shape (2, 5)" in err
    assert not (tmp_path / "o").exists()


def test_the_embedded_digits_are_brought_to_the_form_a_zoo_network_takes(tmp_path, ran):
    status, _, err = ran("inspect", "zoo:shortcut_linear", "--lens", "structure", "--out", tmp_path / "o")
    assert status == 0 and "whitened to 10 principal components" in err
