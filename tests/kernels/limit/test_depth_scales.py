"""Fixed points and depth scales against iterated maps, closed forms and the kernel of a deep network itself."""

import math

import pytest
import torch
from torch import nn

from skiplens.kernels import infinite_width

X = torch.randn(2, 6, generator=torch.Generator().manual_seed(0), dtype=torch.float64)


def deep(function, gain, offset, depth=1, width=8):
    layers = [nn.Linear(6, width)]
    for _ in range(depth):
        layers += [function(), nn.Linear(width, width)]
    for layer in layers[::2]:
        nn.init.constant_(layer.weight, math.sqrt(gain / layer.in_features))
        nn.init.constant_(layer.bias, math.sqrt(offset))
    return nn.Sequential(*layers).double()


@pytest.mark.slow
@pytest.mark.parametrize("gain, offset", [(0.5, 0.1), (1.5, 0.3), (3.0, 0.05)])
def test_a_deep_network_ends_where_the_step_says_and_as_soon(gain, offset):
    (scale,) = infinite_width(deep(nn.Tanh, gain, offset), X).depth_scales()
    assert (scale.nonlinearity, scale.matrix) == ("tanh", "linear")
    correlations = []
    for depth in (40, 41):
        K = infinite_width(deep(nn.Tanh, gain, offset, depth), X).nngp(X)
        correlations.append(float(K[0, 1] / (K[0, 0] * K[1, 1]).sqrt()))
    assert float(K[0, 0]) == pytest.approx(scale.variance, rel=1e-6)
    assert correlations[1] == pytest.approx(scale.correlation, abs=1e-2)
    if abs(correlations[0] - scale.correlation) > 1e-9:
        ratio = (correlations[1] - scale.correlation) / (correlations[0] - scale.correlation)
        assert -1 / math.log(ratio) == pytest.approx(scale.scale, rel=0.05)


def test_relu_at_its_critical_gain_and_beside_it():
    (critical,) = infinite_width(deep(nn.ReLU, 2.0, 0.0), X).depth_scales()
    assert (
        critical.slope == pytest.approx(1) and critical.correlation == pytest.approx(1) and critical.scale == math.inf
    )
    for gain, end in ((1.5, 0.0), (3.0, math.inf)):
        (scale,) = infinite_width(deep(nn.ReLU, gain, 0.0), X).depth_scales()
        assert scale.slope == pytest.approx(gain / 2) and scale.variance == end and math.isnan(scale.correlation)


def test_erf_has_a_closed_fixed_point():
    """q* of erf with σ_b = 0 solves q = σ_w²·(2/π)·asin(2q/(1 + 2q))."""
    (scale,) = infinite_width(deep(Erf, 2.0, 0.0), X).depth_scales()
    q = scale.variance
    assert q == pytest.approx(2 * 2 / math.pi * math.asin(2 * q / (1 + 2 * q)), rel=1e-8)
    assert scale.correlation == pytest.approx(0, abs=1e-6)  # in the chaotic phase without biases
    assert scale.scale == pytest.approx(-1 / math.log(2 * 4 / math.pi / (1 + 2 * q)), rel=1e-6)


class Erf(nn.Module):
    def forward(self, x):
        return torch.erf(x)
