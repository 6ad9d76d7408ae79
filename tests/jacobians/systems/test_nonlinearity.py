"""The table of slopes and curvatures against the largest values on a fine grid."""

import math

import pytest
import torch

SMOOTH = ["tanh", "sigmoid", "softplus", "logsigmoid", "sin", "softsign", "elu", "gelu", "gelu_tanh", "silu", "mish"]
KINKED = ["relu", "leaky_relu", "relu6", "hardtanh", "hardswish", "hardsigmoid", "selu", "prelu"]


@pytest.fixture
def table():
    from skiplens.jacobians.systems.elementwise import NONLINEARITIES

    return NONLINEARITIES


def test_all_are_tested(table):
    assert {*SMOOTH, *KINKED, "identity"} == set(table)


@pytest.mark.parametrize("name", SMOOTH)
def test_suprema_are_attained_and_not_exceeded(table, name):
    phi, x = table[name], torch.linspace(-12, 12, 240_001)
    slope = phi.derivative(x)
    curvature = float(slope.diff().abs().max() / (x[1] - x[0]))
    assert float(slope.abs().max()) <= phi.slope
    assert float(slope.abs().max()) == pytest.approx(phi.slope, rel=1e-4)
    assert curvature <= phi.curvature * (1 + 1e-9)
    assert curvature == pytest.approx(phi.curvature, rel=1e-3)
    assert float(phi.function(x).abs().max()) <= phi.bound
    assert float(phi.function(torch.zeros(1))) == pytest.approx(phi.at_zero, abs=1e-15)
    assert phi.is_smooth


def test_printed_suprema(table):
    assert table["gelu"].slope == pytest.approx(1.128904145, abs=1e-9)
    assert table["silu"].slope == pytest.approx(1.099839320, abs=1e-9)
    assert table["tanh"].curvature == pytest.approx(0.769800358919501, rel=1e-14)
    assert table["sigmoid"].curvature == pytest.approx(0.0962250448649376, rel=1e-14)


@pytest.mark.parametrize("name", KINKED)
def test_kinks_jump(table, name):
    phi, x = table[name], torch.linspace(-7, 7, 14_001)
    jumps = phi.derivative(x).diff().abs()
    assert float(jumps.max()) > 100 * float(jumps.median())
    assert math.isinf(phi.curvature) and not phi.is_smooth
    # torch computes hardsigmoid with 1/6 rounded to float32
    assert float(phi.derivative(x).abs().max()) <= phi.slope * (1 + 1e-7)
