"""Ctrl-C ends with status 130, shows what was finished, and never replaces a whole report by less."""

import signal

import pytest

from skiplens.report.inspection import Report
from skiplens.signal.layers import LayersLens
from skiplens.task.report import TaskLens

MODEL = """
import torch
from torch import nn
def build(): return nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 2))
def other(): return nn.Sequential(nn.Linear(4, 4), nn.Tanh(), nn.Linear(4, 2))
def data(): return torch.randn(8, 4), torch.arange(8) % 2
"""


@pytest.fixture
def inspected(ran, tmp_path):
    """The command on a small model, with the task lens and those that always come."""
    file = tmp_path / "mine.py"
    file.write_text(MODEL)
    words = ("inspect", f"{file}:build", "--data", f"{file}:data", "--lens", "task", "--out", tmp_path / "out")
    return lambda *more: ran(*words, *more)


@pytest.fixture
def interrupted(monkeypatch):
    """Press Ctrl-C where the work of a lens begins."""

    def press(*given):
        signal.raise_signal(signal.SIGINT)

    if signal.getsignal(signal.SIGINT) is not signal.default_int_handler:
        pytest.skip("interrupts from the keyboard are switched off here")
    return lambda lens: monkeypatch.setattr(lens, "__call__", press)


def contents(folder):
    return {path.relative_to(folder): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_an_interrupted_run_never_replaces_a_whole_report_by_less(inspected, interrupted, tmp_path):
    assert inspected()[0] == 0
    whole = contents(tmp_path / "out")
    interrupted(TaskLens)
    status, _, errors = inspected()
    assert status == 130 and contents(tmp_path / "out") == whole
    assert "is kept and what was finished goes to" in errors and "--force replaces it" in errors
    kept = Report.load(tmp_path / "out-interrupted")
    assert kept.readings and any("interrupted" in problem.message for problem in kept.problems)
    assert inspected("--force")[0] == 130
    assert len(Report.load(tmp_path / "out").readings) == len(kept.readings)


def test_an_interrupted_run_writes_where_nothing_is_lost(inspected, interrupted, tmp_path):
    interrupted(TaskLens)
    assert inspected()[0] == 130
    assert Report.load(tmp_path / "out").readings and not (tmp_path / "out-interrupted").exists()


def test_an_interruption_while_the_report_is_written_leaves_the_old_one(inspected, interrupted, tmp_path, monkeypatch):
    assert inspected()[0] == 0
    whole = contents(tmp_path / "out")
    monkeypatch.setattr(Report, "save", lambda *given: signal.raise_signal(signal.SIGINT))
    assert inspected("--seed", "1")[0] == 130
    assert contents(tmp_path / "out") == whole


def test_an_interrupted_comparison_keeps_the_old_one(ran, interrupted, tmp_path, inspected):
    file = tmp_path / "mine.py"
    words = ("compare", f"{file}:build", f"{file}:other", "--data", f"{file}:data", "--lens", "task", "--draws", "2")
    out = ("--out", tmp_path / "out")
    assert ran(*words, *out)[0] == 0
    whole, counted, look = contents(tmp_path / "out"), [], LayersLens.__call__

    def third(*given):
        counted.append(given)
        return look(*given) if len(counted) < 4 else signal.raise_signal(signal.SIGINT)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(LayersLens, "__call__", third)
        assert ran(*words, *out)[0] == 130
    assert contents(tmp_path / "out") == whole and (tmp_path / "out-interrupted/comparison.json").exists()


@pytest.mark.usefixtures("interrupted")
def test_an_interruption_before_anything_is_measured_is_one(inspected, tmp_path, monkeypatch):
    monkeypatch.setattr("skiplens.cli.models.build_model", lambda *given: signal.raise_signal(signal.SIGINT))
    assert inspected()[0] == 130 and not (tmp_path / "out").exists()
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


@pytest.mark.usefixtures("interrupted", "inspected")
@pytest.mark.parametrize("verb", ["forecast", "rank"])
def test_an_interrupted_forecast_says_nothing_but_that(ran, tmp_path, monkeypatch, verb):
    monkeypatch.setattr("skiplens.trainability.pilot.Shelf.take", lambda *given: signal.raise_signal(signal.SIGINT))
    file = tmp_path / "mine.py"
    names = [f"{file}:build", f"{file}:other"][: 1 if verb == "forecast" else 2]
    status, output, _ = ran(verb, *names, "--data", f"{file}:data")
    assert status == 130 and not output.strip()
