"""Key numbers and curves of readings made by hand."""

import math

import pytest
import torch

from skiplens.report.lenses import key_numbers, overlays_of
from skiplens.tangent.reading import TangentReading
from skiplens.training.history import TrainingHistory
from tests.jacobians.hypotheses.test_convergence import hypotheses
from tests.report.readings import signal
from tests.sample_readings import curvature, jacobians, structure

KERNEL = torch.tensor([[4.0, 0.0], [0.0, 1.0]])


def tangent() -> TangentReading:
    classes, angles = torch.zeros(2, dtype=torch.int64), torch.zeros(2, 2)
    return TangentReading(kernel=KERNEL, targets=classes, angles=angles, parameters=3, batch_coupled=False)


def values(reading) -> dict[str, float]:
    return {number.label: number.value for number in key_numbers(reading)}


def test_numbers_by_hand():
    assert values(structure(4)) == {"parameters": 10, "residual blocks": 4, "projection shortcuts": 2}
    followed = values(signal(blocks=8, rate=0.5, back=-0.25))
    assert followed["signal, factor per block"] == pytest.approx(math.exp(0.5))
    assert followed["gradient, factor per block"] == pytest.approx(math.exp(-0.25))
    assert values(curvature())["condition number"] == pytest.approx(8.0)
    assert values(curvature())["share of curvature that is downward"] == pytest.approx(1.5 / 8)
    blocks = values(jacobians())
    assert blocks["singular value of blocks, geometric mean"] == pytest.approx((1.5 * 1.0 * 2.0 * 0.9) ** 0.25)
    assert blocks["largest singular value end to end"] == 2
    assert values(hypotheses("fails", "holds", "holds", "holds"))["hypotheses that hold"] == 3
    assert values(tangent()) == {
        "condition number of the kernel": 4,
        "effective rank of the kernel": pytest.approx(25 / 17),
        "mean of the kernel's diagonal": 2.5,
    }


def test_other_readings_have_none():
    assert key_numbers(TrainingHistory(losses=torch.ones(1), learning_rates=torch.ones(1), steps_per_epoch=1)) == ()


def curve(reading, name: str):
    (overlay,) = (overlay for overlay in overlays_of(type(reading)) if overlay.name == name)
    return overlay.curve(reading)


def test_curves_by_hand():
    grown = curve(signal(blocks=4, rate=0.5), "signal_by_depth")
    assert grown.y == pytest.approx(torch.exp(0.5 * torch.arange(5)), rel=1e-12)
    back = curve(signal(blocks=4, back=-0.5), "gradient_by_depth")
    assert back.y == pytest.approx(torch.exp(-0.5 * torch.arange(5)), rel=1e-12)
    steep = curve(curvature(), "steepness").y
    assert (steep[0], steep[20], steep[100]) == (0.5, 0.5, 4.0)  # of |λ| = ½, ½, 1, 2, 4
    assert curve(tangent(), "kernel_eigenvalues").y.tolist() == [1.0, 0.25]
    assert curve(jacobians(), "blocks").y == pytest.approx(torch.tensor([1.5**0.5, 1.8**0.5]), rel=1e-6)
    assert curve(jacobians(), "network").y[-1] == 2
