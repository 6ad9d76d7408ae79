import inspect
import math

import pytest
import torch
from torch import nn

from skiplens.graph import network
from skiplens.signal import gradients, units
from skiplens.signal.units import surprise
from tests.networks import Formula, drawn, linear, noise
from tests.signal.looking import look


def shut(layer: nn.Module, units: int) -> nn.Module:
    """The layer with a bias that closes its first units."""
    with torch.no_grad():
        layer.bias[:units] = -1e3
        layer.bias[units:] = 1e3
    return layer


def test_dead_features_after_a_matrix():
    net = Formula(lambda m, x: x + m.g(torch.relu(m.f(x))), f=shut(linear(3, 8), 6), g=linear(8, 3))
    reading = look(net, noise(5, 7, 3))
    assert float(reading.dead_units[0]) == 0.75 and reading.dead_widths.tolist() == [8]


@pytest.mark.parametrize("norm", [False, True])
def test_dead_channels_after_a_convolution(norm):
    after = nn.BatchNorm2d(4) if norm else nn.Identity()
    if norm:
        nn.init.zeros_(after.weight)
        shut(after, 3)
    net = Formula(
        lambda m, x: x + m.g(torch.relu(m.after(m.f(x)))),
        f=shut(nn.Conv2d(4, 4, 1), 3),
        after=after,
        g=nn.Conv2d(4, 4, 1),
    )
    assert float(look(net, noise(5, 4, 6, 6)).dead_units[0]) == 0.75


def test_units_that_get_nothing_yet_are_not_shut():
    """As in the gate of a branch that ends in a layer which starts at zero."""
    last = nn.Conv2d(4, 4, 1)
    nn.init.zeros_(last.weight), nn.init.zeros_(last.bias)

    def rule(m, x):
        y = m.last(x)
        return x + y * torch.sigmoid(m.up(torch.relu(m.down(y.mean((2, 3), keepdim=True)))))

    down = nn.Conv2d(4, 24, 1, bias=False)
    reading = look(Formula(rule, last=last, down=down, up=nn.Conv2d(24, 4, 1)), noise(5, 4, 6, 6))
    assert reading.dead_units.tolist() == [0] and reading.dead_widths.tolist() == [24]


def test_one_open_sample_is_enough():
    net = Formula(lambda m, x: x + m.g(torch.relu(x)), g=linear())
    inputs = -torch.ones(4, 3)
    inputs[2, 0] = 1.0
    assert float(look(net, inputs).dead_units[0]) == pytest.approx(2 / 3)


def test_the_most_surprising_layer_counts():
    """All of two units may be chance; forty of forty are not."""
    small, wide = shut(linear(3, 2), 2), shut(linear(2, 40), 36)
    net = Formula(lambda m, x: x + m.h(torch.relu(m.g(torch.relu(m.f(x))))), f=small, g=wide, h=linear(40, 3))
    reading = look(net, noise(5, 3))
    assert float(reading.dead_units[0]) == 0.9 and reading.dead_widths.tolist() == [40]


@pytest.mark.parametrize("activation", [torch.tanh, torch.sigmoid])
def test_saturated_units(activation):
    net = Formula(lambda m, x: x + m.g(activation(m.f(x))), f=linear(3, 4), g=linear(4, 3))
    drawn(net)
    with torch.no_grad():
        net.f.bias[:3] = 50.0
        net.f.bias[3] = 0.0
    reading = look(net, noise(5, 3))
    assert float(reading.saturated_units[0]) == 0.75 and math.isnan(float(reading.dead_units[0]))


def test_the_slope_of_saturation_is_one_percent():
    """tanh′ = 1 − tanh² falls below 1 % at atanh(√0.99) = 2.9932."""
    net = Formula(lambda m, x: x + m.g(torch.tanh(x)), g=linear())
    inputs = torch.tensor([[2.98, 3.0, -3.0]]).expand(4, 3)
    assert float(look(net, inputs).saturated_units[0]) == pytest.approx(2 / 3)


def test_surprise_counts_standard_deviations_of_a_coin():
    assert surprise(1.0, 16) == 4.0 and surprise(0.5, 100) == 0.0


def test_one_pass_forwards_shows_signal_units_and_gradient(monkeypatch):
    """No operation is carried out twice, not even to take the gradient of what it made."""
    blocks = [Formula(lambda m, x: x + m.f(x).relu(), f=linear()) for _ in range(3)]
    net, ran, plain = drawn(nn.Sequential(linear(), *blocks)), list[str](), network.plain_call

    def note(node, arguments, keywords):
        ran.append(node.name)
        return plain(node, arguments, keywords)

    monkeypatch.setattr(gradients, "plain_call", note)
    monkeypatch.setattr(inspect.unwrap(units.watching_call), "__defaults__", (note,))
    reading = look(net, noise(5, 3))
    assert len(reading.signal) == 4 and reading.dead_units.isfinite().all() and reading.gradient.all()
    assert len(ran) == len(set(ran)) == 10
