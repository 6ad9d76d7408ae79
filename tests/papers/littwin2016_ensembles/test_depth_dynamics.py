import math

import pytest
import torch

from skiplens.base.errors import InvalidInputError
from skiplens.papers.littwin2016_ensembles.dynamics import (
    branch_scale_slope,
    layer_scale_increment,
    scale_drive,
)
from skiplens.papers.littwin2016_ensembles.spin_glass.complexity import Mixture
from skiplens.papers.littwin2016_ensembles.spin_glass.hamiltonian import SpinGlass, random_points
from tests.tolerances import assert_close

CASES = [(2, 4, 8), (3, 5, 6)]  # short length, long length, spins


def two_parts(short, long, spins, generator):
    """The homogeneous parts of degree `short` and `long` of a spin glass, as functions of one point."""
    weights = torch.zeros(long)
    weights[short - 1] = weights[long - 1] = 1
    glass = SpinGlass.sample(Mixture(weights), spins, generator)

    def parts(w):
        return glass.energy_by_order(w[None])[0][[short - 1, long - 1]]

    return parts


def great_circle(spins, generator):
    """A random great circle of the sphere, as a function of the angle."""
    start, side = random_points(2, spins, generator)
    side = side - (side @ start) / (start @ start) * start
    side = side * start.norm() / side.norm()
    return lambda angle: math.cos(angle) * start + math.sin(angle) * side


def zero_on_a_great_circle(function, spins, generator):
    """A point at which `function` of a point vanishes: rotate until the sign changes, then bisect."""
    angles = torch.linspace(0, 2 * math.pi, 60).tolist()
    for _ in range(50):  # an even function may have one sign on a whole circle
        point = great_circle(spins, generator)
        values = [function(point(angle)).item() for angle in angles]
        crossings = [i for i in range(len(angles) - 1) if values[i] * values[i + 1] < 0]
        if crossings:
            break
    low, high = angles[crossings[0]], angles[crossings[0] + 1]
    for _ in range(100):
        middle = (low + high) / 2
        if function(point(middle)).item() * values[crossings[0]] > 0:
            low = middle
        else:
            high = middle
    return point(low)


def gradient(function, at):
    leaf = at.clone().requires_grad_()
    return torch.autograd.grad(function(leaf), leaf)[0]


@pytest.mark.parametrize("skipped", [False, True])
@pytest.mark.parametrize(("short", "long", "spins"), CASES)
def test_theorem_three_increment_equals_autograd(short, long, spins, skipped, generator):
    parts = two_parts(short, long, spins, generator)
    scales = 0.5 + torch.rand(long, generator=generator)
    scales[0] = -scales[0]

    def loss(w, scales):
        shallow, deep = parts(w)
        return scales[:short].prod() * shallow + scales.prod() * deep

    def short_part(w):
        return scales[:short].prod() * parts(w)[0]

    def long_part(w):
        return scales.prod() * parts(w)[1]

    layer = long - 1 if skipped else 0
    hypothesis = long_part if skipped else lambda w: loss(w, scales)
    w = zero_on_a_great_circle(hypothesis, spins, generator)
    gradients = gradient(short_part, w), gradient(long_part, w)
    errors = []
    for rate in (1e-4, 1e-5):
        moved = w - rate * sum(gradients)
        slope = gradient(lambda values, moved=moved: loss(moved, values), scales)[layer]
        increment = (scales[layer] - rate * slope).abs() - scales[layer].abs()
        predicted = layer_scale_increment(*gradients, scales[layer].item(), rate, skipped)
        errors.append(abs(increment / predicted - 1).item())
    # the prediction is the leading order in the rate: ten times smaller rate, ten times smaller error
    assert errors[1] == pytest.approx(errors[0] / 10, rel=0.1, abs=1e-7)
    assert errors[1] < 0.01


def test_layers_that_no_path_skips_never_shrink(generator):
    short, long = torch.randn(2, 7, generator=generator)
    assert layer_scale_increment(short, long, -0.4, 0.01, skipped=False) >= 0
    assert layer_scale_increment(short, 3 * short.norm() / long.norm() * long, 0.4, 0.01, skipped=True) > 0


@pytest.mark.parametrize(("short", "long", "spins"), CASES)
def test_theorem_four_slope_equals_autograd_and_differs_from_the_printed_line(short, long, spins, generator):
    parts = two_parts(short, long, spins, generator)
    lengths = torch.tensor([float(short), float(long)])
    C = 0.7

    def slope_in_scale(w):
        """dL/dC for the loss L_m(C w̃) + L_p(C w̃) at w = C w̃, by autograd in C."""
        scale = torch.tensor(C, requires_grad=True)
        return torch.autograd.grad(parts(scale * w / C).sum(), scale)[0]

    w = zero_on_a_great_circle(slope_in_scale, spins, generator)
    rows = torch.stack([gradient(lambda v, i=i: parts(v)[i], w) for i in (0, 1)])
    rate = 1e-5
    measured = slope_in_scale(w - rate * rows.sum(0))
    predicted = branch_scale_slope(rows, lengths, C, rate)
    assert measured.item() == pytest.approx(predicted.item(), rel=5e-3)
    g_m, g_p = rows
    form = short * g_m @ g_m + long * g_p @ g_p + (short + long) * g_m @ g_p
    assert_close(scale_drive(rows, lengths), form)
    printed = short * g_p @ g_p + long * g_p @ g_p + (short + long) * g_m @ g_p
    assert abs(printed / form - 1) > 0.02


def test_the_drive_is_negative_exactly_between_the_two_thresholds(generator):
    g = torch.randn(9, generator=generator)
    lengths = torch.tensor([2.0, 5.0])
    for kappa in (0.1, 0.39, 0.41, 0.7, 0.99, 1.01, 3.0):
        drive = scale_drive(torch.stack([g, -kappa * g]), lengths).item()
        assert drive == pytest.approx((1 - kappa) * (2 - 5 * kappa) * (g @ g).item(), rel=1e-12)
        assert (drive < 0) == (2 / 5 < kappa < 1)


def test_bad_input():
    with pytest.raises(InvalidInputError, match="The layer's scale must not be 0"):
        layer_scale_increment(torch.ones(2), torch.ones(2), 0.0, 0.1, skipped=True)
    with pytest.raises(
        InvalidInputError, match=r"one row for each path length; got shape \(2, 3\) for lengths of shape \(3,\)"
    ):
        scale_drive(torch.ones(2, 3), torch.ones(3))
    with pytest.raises(InvalidInputError, match="The branch scale must be positive and finite; got -1"):
        branch_scale_slope(torch.ones(2, 3), torch.ones(2), -1.0, 0.1)
