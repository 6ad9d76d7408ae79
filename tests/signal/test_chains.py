"""Stages and towers: only what blocks do to the signal counts, and only blocks that follow each other add up."""

import math

import pytest
import torch
from torch import nn

from skiplens.signal.findings import judge_gradient, judge_signal
from tests.networks import Formula, noise
from tests.signal.looking import look

FACTOR = 1.5
BOTH = noise(4, 3), noise(4, 3, seed=1)


class Times(nn.Module):
    """x + x/2: a block that multiplies signal and gradient by 3/2, whatever comes in."""

    def __init__(self):
        super().__init__()
        self.scale = nn.Parameter(torch.full((3,), FACTOR - 1))

    def forward(self, x):
        return x + x * self.scale


def matrix(size):
    layer = nn.Linear(3, 3, bias=False)
    nn.init.eye_(layer.weight)
    with torch.no_grad():
        layer.weight.mul_(size)
    return layer


def chain(*between):
    """Two blocks before, between and behind matrices of these sizes."""
    stages = [nn.Sequential(Times(), Times()) for _ in range(len(between) + 1)]
    parts = [part for pair in zip(stages, map(matrix, between), strict=False) for part in pair]
    return nn.Sequential(*parts, stages[-1])


def two_towers(m, x, y):
    return m.left(x) * m.right(m.enter(y))


@pytest.mark.parametrize("between", [(), (1e-3,), (1e-3, 1e2)])
def test_what_happens_between_stages_is_no_growth_of_blocks(between):
    reading = look(chain(*between), noise(4, 3))
    assert reading.starts == tuple(range(2, 2 * len(between) + 1, 2))
    assert reading.in_series == reading.longest == reading.depth == 2 * (len(between) + 1)
    for growth in (reading.signal_growth, reading.gradient_growth):
        assert growth.rate == pytest.approx(math.log(FACTOR))
        assert growth.low == pytest.approx(growth.high)


def test_downsampling_alone_is_no_finding():
    model = chain(1e-4, 1e-4, 1e-4)
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.ndim == 1:
                parameter.fill_(1e-3)
    reading = look(model, noise(4, 3))
    assert float(reading.signal[-1].mean()) < 1e-11
    assert not [*judge_signal(reading), *judge_gradient(reading)]


def test_each_tower_is_followed_by_itself():
    reading = look(Formula(two_towers, left=chain(), right=chain(), enter=matrix(1e-6)), BOTH)
    assert reading.depth == 4 and reading.longest == 2 and reading.starts == (2,)
    assert reading.signal_growth.rate == pytest.approx(math.log(FACTOR))
    assert reading.gradient_growth.rate == pytest.approx(math.log(FACTOR))


def test_a_tower_may_begin_with_an_input():
    reading = look(Formula(two_towers, left=chain(), right=chain(), enter=nn.Identity()), BOTH)
    assert reading.starts == (2,) and reading.gradient_growth.rate == pytest.approx(math.log(FACTOR))
