import pytest
import torch
from torch import nn

from skiplens.signal.branches import is_near_zero
from tests.networks import Attention, Formula, drawn, linear, noise
from tests.signal.looking import look

X = noise(4, 3)


class Branch(nn.Sequential):
    """Three matrices with a tanh between; those numbered in `zero` are zero."""

    def __init__(self, *zero: int) -> None:
        super().__init__(linear(), nn.Tanh(), linear(), nn.Tanh(), linear())
        drawn(self)
        with torch.no_grad():
            for number in zero:
                self[2 * number].weight.zero_()


@pytest.mark.parametrize("zero", [(), (2,), (0, 2), (0, 1, 2)])
def test_zero_matrices_in_series_are_counted(zero):
    net = Formula(lambda m, x: x + m.f(x), f=Branch(*zero))
    assert look(net, X).zero_factors.tolist() == [len(zero)]


def test_side_by_side_is_not_in_series():
    net = Formula(lambda m, x: x + m.f(x) + m.g(x), f=Branch(0, 1), g=Branch(2))
    assert look(net, X).zero_factors.tolist() == [2]


def test_queries_keys_and_values_are_side_by_side():
    attention = drawn(Attention(4))
    with torch.no_grad():
        for layer in (attention.query, attention.key, attention.value, attention.out):
            layer.weight.zero_()
    assert look(Formula(lambda m, x: x + m.f(x), f=attention), noise(2, 3, 4)).zero_factors.tolist() == [2]


def test_scales_count_as_factors():
    norm = nn.BatchNorm1d(3)
    nn.init.zeros_(norm.weight)
    scaled = Formula(
        lambda m, x: x + m.scale * m.norm(m.f(x)), f=linear(), norm=norm, scale=nn.Parameter(torch.full((3,), 1e-6))
    )
    reading = look(scaled, X)
    assert reading.zero_factors.tolist() == [2]
    assert reading.scales == (("norm.weight", "scale"),) and reading.matrices == (("f.weight",),)
    assert set(reading.shifts[0]) == {"f.bias", "norm.bias"} and float(reading.norm_scales[0]) == 0.0


def test_the_boundary_is_two_percent_of_xavier(generator):
    weight = torch.randn(400, 100, generator=generator) * (2 / 500) ** 0.5
    assert is_near_zero(0.01 * weight, True) and not is_near_zero(0.04 * weight, True)
    assert is_near_zero(torch.full((4,), 0.01), False) and not is_near_zero(torch.full((4,), 0.04), False)


def test_weight_norm_and_width():
    net = Formula(lambda m, x: x + m.g(m.f(x)), f=linear(3, 5), g=linear(5, 3))
    reading = look(drawn(net), X)
    frobenius = [float(layer.weight.detach().norm()) for layer in (net.f, net.g)]
    assert float(reading.weight_norms[0]) == pytest.approx((sum(n**2 for n in frobenius) / 2) ** 0.5)
    assert reading.widths.tolist() == [3] and reading.branch_depths.tolist() == [2]


def test_what_only_decides_is_no_width():
    def routed(m, x):
        weights, chosen = m.gate(x).softmax(-1).topk(1)
        return x + weights * (1 + chosen) * m.f(x)

    assert look(drawn(Formula(routed, gate=linear(3, 2), f=linear())), X).widths.tolist() == [3]
