"""What was measured with how much, in which mode, and when that is enough for a word of health."""

import copy
import sys
import types

import pytest
import torch
from torch import nn

import skiplens as sl
from skiplens.base.errors import InvalidInputError
from skiplens.base.progress import silent, usual
from skiplens.graph.batch import Batch
from skiplens.graph.lens import MORE_TIME, OPERATIONS, operations_of
from skiplens.jacobians.reading import JacobianSpectrum
from skiplens.report import inspection
from skiplens.report.lenses import JUDGED, samples_of, spared
from skiplens.signal.reading import SignalReading
from skiplens.signal.structure import StructureReading
from skiplens.tangent.reading import TangentReading
from skiplens.trainability.reading import Forecast
from tests.networks import Formula, drawn, linear, noise
from tests.report import planted

LABELS = torch.arange(8) % 2


def residual(*more: nn.Module) -> nn.Module:
    return drawn(nn.Sequential(Formula(lambda m, x: x + m.f(x), f=linear()), *more))


def test_dropout_in_training_mode_costs_no_lens_and_is_told():
    model = residual(nn.BatchNorm1d(3), nn.Dropout(0.5)).train()
    flags = [module.training for module in model.modules()]
    report = sl.inspect(model, (noise(8, 3), LABELS), lenses=[*JUDGED])
    assert report.problems == () and [module.training for module in model.modules()] == flags
    (note,) = (note for note in report.reading(StructureReading).notes if "Dropout" in note)
    assert "switched off in 1 place (2) while the model was measured" in note
    assert report.reading(SignalReading).dropout == () and report.reading(StructureReading).training


def test_the_numbers_are_those_of_the_model_without_its_dropout():
    inside, without = residual(nn.Dropout(0.5)).train(), residual(nn.Identity()).train()
    kernels = [
        sl.inspect(model, (noise(8, 3), LABELS), lenses=["tangent"]).reading(TangentReading).kernel
        for model in (inside, without)
    ]
    assert torch.equal(*kernels)


def test_a_judged_lens_that_is_missing_keeps_the_word_healthy_away():
    assert len(JUDGED) == 7
    report = sl.inspect(residual(), noise(8, 3), lenses=[*JUDGED])
    assert report.verdict.startswith(
        "Not enough measured (5 of 7): task, curvature cannot look at this model with this"
    )
    some = sl.inspect(residual(), noise(8, 3), lenses=["structure"])  # signal and layers always come
    assert some.verdict.startswith("Healthy in what was looked at (2 of 7 lenses)") and str(some).count("2 of 7") == 1


def test_few_samples_keep_the_word_healthy_away():
    few, enough = (
        sl.inspect(residual().eval(), (noise(count, 3), LABELS[:count]), lenses=["tangent"]) for count in (3, 4)
    )
    told = "Not enough measured (0 of 3): signal, layers, tangent had fewer than 4 samples. Nothing serious"
    assert few.verdict.startswith(told) and enough.verdict.startswith("Healthy in what was looked at (3 of 7")


def test_what_a_costly_model_was_spared_is_told_lens_by_lens(monkeypatch):
    """On one screen too, also where a finding takes the place of the verdict; nothing of a cheap model."""
    data = noise(8, 3), LABELS
    assert spared(sl.inspect(residual().eval(), data, lenses=["paths"]).readings) == ""
    cost = operations_of(residual(), Batch(*data))
    monkeypatch.setattr(inspection, "OPERATIONS", 24 * cost)  # three passes of all samples
    report = sl.inspect(residual().eval(), data, lenses=["paths", "jacobians", "tangent", "convergence", "curvature"])
    counts = {name: samples_of(report.reading(kind)) for name, kind in JUDGED.items() if report.reading(kind)}
    assert counts == {"signal": 8, "layers": 8, "paths": 4, "jacobians": 1, "curvature": 1, "tangent": 6}
    told = spared(report.readings)
    assert "paths: A pass through this model is costly, so 4 instead of 8 samples were looked at." in told
    assert "jacobians: A pass through this model is costly, so 1 instead of 4 samples" in told
    assert "convergence: A pass is costly, so the slopes of branches were measured with 1 instead of 4 samples." in told
    assert told.endswith(MORE_TIME) and told.count(MORE_TIME) == 1 and told[:60] in str(report)


def test_fresh_statistics_keep_the_word_healthy_away_but_warn_of_nothing():
    model = residual(nn.BatchNorm1d(3))
    told = "Not known to be healthy: 1 batch norm is in evaluation mode with statistics that no batch has updated"
    fresh = sl.inspect(copy.deepcopy(model).eval(), (noise(8, 3), LABELS), lenses=["structure"])
    assert fresh.verdict.startswith(told) and all(finding.severity == "note" for finding in fresh.findings)
    model.train()(noise(8, 3))
    assert sl.inspect(model.eval(), (noise(8, 3), LABELS), lenses=["structure"]).verdict.startswith("Healthy")


def test_each_sentence_tells_its_samples():
    report = sl.inspect(planted.healthy(2), planted.data(), lenses=["jacobians", "tangent"])
    told = {section.anchor: section.sentence for section in report.sections()}
    assert told["jacobians"].endswith("Measured with 4 samples.")
    assert told["tangent"].endswith("Measured with 32 samples.") and told["signal"].endswith("with 64 samples.")


def test_as_many_samples_as_were_asked_for():
    report = sl.inspect(planted.healthy(2), planted.data(), lenses=["jacobians", "tangent"], samples=10)
    assert report.reading(JacobianSpectrum).samples == 10 and len(report.reading(TangentReading).kernel) == 10
    with pytest.raises(InvalidInputError, match="Asked for 0 samples"):
        sl.inspect(planted.healthy(2), planted.data(), samples=0)


def test_minutes_choose_the_samples(monkeypatch):
    """With 5e10 operations a second, a minute is 3e12 of them, shared by the lenses."""
    cost = OPERATIONS / (6 * 40)  # so that one sample is what the Jacobians can afford by default
    monkeypatch.setattr("skiplens.graph.lens.operations_of", lambda model, batch: cost)
    few, more = (
        sl.inspect(residual().eval(), (noise(8, 3), LABELS), lenses=["jacobians"], minutes=minutes)
        for minutes in (1.0, 5.0)
    )
    few, more = (report.reading(JacobianSpectrum) for report in (few, more))
    assert few.samples == 1 and more.samples == 3  # 4 lenses and one more: 0.6e12 and 3e12 operations for each
    assert "so 1 instead of 4 samples were looked at. More are taken" in few.notes[0]
    with pytest.raises(InvalidInputError, match="minutes=0; give a positive number"):
        sl.inspect(planted.healthy(2), planted.data(), minutes=0)


def test_one_sample_says_nothing_of_what_lies_between_samples():
    report = sl.inspect(residual().eval(), (noise(1, 3), LABELS[:1]), lenses=["tangent", "forecast"])
    assert report.problems == () and report.reading(Forecast).guess == 0
    told = {section.anchor: section.sentence for section in report.sections()}
    assert told["tangent"].startswith("One sample was looked at, so nothing is known of the kernel between samples.")
    assert "differ" not in told["layers"] and all("nan" not in sentence for sentence in told.values())


def test_a_report_prints_as_one_screen():
    report = sl.inspect(planted.dead(), planted.data(), lenses=["task", "jacobians"])
    lines = str(report).splitlines()
    assert repr(report) == str(report) and len(lines) <= 24 and all(len(line) <= 240 for line in lines)
    assert report.verdict[:60] in lines[0] and "Measured with" in str(report)


def test_progress_is_shown_in_a_notebook_alone(monkeypatch, capsys):
    assert usual() is silent
    shell = types.SimpleNamespace(kernel=None)
    monkeypatch.setitem(sys.modules, "IPython", types.SimpleNamespace(get_ipython=lambda: shell))
    sl.inspect(planted.healthy(2), planted.data(), lenses=["structure"])
    assert "finding the residual blocks: 1 of 1" in capsys.readouterr().out
