"""`skiplens forecast` and `skiplens rank`."""

import json

import pytest
from typer.testing import CliRunner

from skiplens.cli.main import app


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "mine.py"
    path.write_text(
        "import torch\n"
        "def build():\n"
        "    torch.manual_seed(0)\n"
        "    return torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.ReLU(), torch.nn.Linear(8, 2))\n"
        "def frozen(): return build().requires_grad_(False)\n"
        "def data():\n"
        "    inputs = torch.randn(256, 4, generator=torch.Generator().manual_seed(0))\n"
        "    return inputs, (inputs[:, 0] > 0).long()\n"
        "def optimizer(parameters): return torch.optim.SGD(parameters, lr=0.1, nesterov=True, momentum=0.8)\n"
    )
    return path


def run(*words):
    return CliRunner().invoke(app, [str(word) for word in words])


def test_a_forecast_in_words_and_as_json(file):
    asked = (f"{file}:build", "--data", f"{file}:data", "--steps", "100")
    done = run("forecast", *asked)
    assert done.exit_code == 0, done.output
    assert "after 100 steps of Adam" in done.output
    content = json.loads(run("forecast", *asked, "--json").stdout)
    assert content["values"]["steps"] == 100 and content["values"]["word"] in done.output.lower()


def test_an_optimizer_of_ones_own(file):
    done = run("forecast", f"{file}:build", "--data", f"{file}:data", "--optimizer", f"{file}:optimizer")
    assert done.exit_code == 0, done.output
    assert "steps of optimizer" in done.output


def test_a_ranking_says_what_could_not_be_judged(file):
    done = run("rank", f"{file}:build", f"{file}:frozen", "--data", f"{file}:data")
    assert done.exit_code == 0, done.output
    assert "Ranking" in done.output and "no parameter" in done.output
    content = json.loads(run("rank", f"{file}:build", "--data", f"{file}:data", "--json").stdout)
    assert content["places"][0]["place"] == 1


def test_bad_words_are_one_sentence(file):
    done = run("forecast", f"{file}:build", "--data", f"{file}:data", "--optimizer", "adan")
    assert done.exit_code != 0
    assert "no optimizer 'adan'" in str(done.exception)


def test_a_folder_keeps_the_forecast_and_goes_on_with_it_only(file, tmp_path):
    asked = ("forecast", f"{file}:build", "--data", f"{file}:data", "--cost", "20", "--out", tmp_path / "out")
    content = json.loads(run(*asked, "--json").stdout)
    assert json.loads((tmp_path / "out/forecast.json").read_text(encoding="utf-8"))["values"] == content["values"]
    assert json.loads(run(*asked, "--json").stdout)["values"] == content["values"]
    assert "seed (0 there, 1 here)" in str(run(*asked, "--seed", "1").exception)
    (tmp_path / "file").write_text("")
    assert "Nothing can be written" in str(run(*asked[:-1], tmp_path / "file").exception)
