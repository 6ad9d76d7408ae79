"""Dropout that leaves next to nothing is found although the lenses look without dropout, and making it light helps."""

import pytest
import torch
from torch import nn

import skiplens as sl
from skiplens.base.preserve_state import dropout_off
from skiplens.edits.structure import drop_rates
from skiplens.report import RaceOptions
from skiplens.report.verification_reading import VerificationReading
from skiplens.task.reading import TaskReading


def network():
    torch.manual_seed(0)
    layers = nn.Linear(20, 64), nn.ReLU(), nn.Dropout(0.97), nn.Linear(64, 64), nn.ReLU(), nn.Dropout(0.97)
    return nn.Sequential(*layers, nn.Linear(64, 4)).float()


def data():
    inputs = torch.randn(256, 20, generator=torch.Generator().manual_seed(0), dtype=torch.float32)
    return inputs, inputs[:, :4].argmax(1)


def test_it_is_found_without_dropout_and_tried():
    model = network()
    with dropout_off(model), dropout_off(model):
        assert drop_rates(model) == {"2": 0.97, "5": 0.97} and model[2].p == 0
    assert drop_rates(model) == {"2": 0.97, "5": 0.97}
    report = sl.inspect(model, data(), lenses=("task", "forecast"))
    assert report.reading(TaskReading).dropouts == ("2", "5") and model[2].p == 0.97
    assert "97 % of the values are dropped at 2, 5" in report.verdict
    assert report.advice.startswith("What to change first: Let 2, 5 drop 3 % of the values."), report.advice
    proven = sl.verify(report, model, data(), options=RaceOptions(steps=60, seeds=3))
    race = next(r for r in proven.readings if isinstance(r, VerificationReading) and r.rule == "heavy_dropout")
    assert race.before == 0.97 and race.after == pytest.approx(0.03, rel=1e-12)
