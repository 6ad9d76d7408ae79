import math

import pytest
import torch
from torch import nn

import skiplens as sl
from skiplens import zoo
from skiplens.base.progress import silent
from skiplens.base.randomness import Randomness
from skiplens.base.words import in_words
from skiplens.graph.batch import Batch
from skiplens.graph.lens import OPERATIONS, Subject
from skiplens.kernels.architectures import ResNetKernel
from skiplens.kernels.finite_width.moments import kernel_moments
from skiplens.kernels.finite_width.networks import ResNet
from skiplens.kernels.infinite_network import infinite_resnet
from skiplens.kernels.limit import draws
from skiplens.plots.figure import numbers
from skiplens.signal.lens import SignalLens
from skiplens.tangent import comparison
from skiplens.tangent.comparison import (
    branch_parameters,
    diagonals_over_seeds,
    limit_correlations,
    limit_of,
    limit_of_module,
    redrawn,
)
from skiplens.tangent.reading import TangentReading
from skiplens.tangent.report import TangentLens, kernel_against_angle, tangent_section
from tests.lens_cases import subject
from tests.networks import Formula, noise
from tests.tolerances import STANDARD_ERRORS, assert_close


def tangent_resnet(width: int = 16, depth: int = 3, seed: int = 0) -> Subject:
    model = zoo.build("tangent_resnet", seed, width=width, depth=depth, branch_scale=0.5)
    return Subject(model.double(), Batch(noise(5, 10), torch.arange(5) % 2), "tangent")


def read(looked_at: Subject) -> TangentReading:
    return TangentLens()(looked_at, Randomness(0), silent)


def test_a_redrawn_network_has_the_size_of_the_old_one_and_leaves_it(generator):
    model = nn.Sequential(nn.Linear(200, 100), nn.BatchNorm1d(100))
    before = {name: value.clone() for name, value in model.state_dict().items()}
    fresh = redrawn(model, generator)
    assert all(torch.equal(before[name], value) for name, value in model.state_dict().items())
    assert not torch.equal(fresh[0].weight, model[0].weight) and torch.equal(fresh[0].bias, model[0].bias)
    old, new = model[0].weight.detach(), fresh[0].weight.detach()
    count, spread = old.numel(), float(old.std())
    assert abs(float(new.mean() - old.mean())) < STANDARD_ERRORS * spread / count**0.5
    assert abs(float(new.std()) / spread - 1) < STANDARD_ERRORS / (2 * count) ** 0.5


@pytest.mark.slow
def test_redraws_have_the_variance_of_theory():
    """Many seeds of a narrow network against the exact moments of 'Residual Tangent Kernels', theorem 5."""
    looked_at = tangent_resnet(width=16, depth=2)
    seeds = [Randomness(number) for number in range(300)]
    rows = diagonals_over_seeds(looked_at.model, noise(1, 10), branch_parameters(looked_at), seeds, silent)
    values = rows.flatten() / rows.mean()
    square = (values - 1).square()
    expected = float(kernel_moments(ResNet(2, 16, 2, 0.5)).relative_variance)
    # The first two moments of the weights drawn once differ from theory's by some 1/√256 each.
    assert abs(float(square.mean()) - expected) < STANDARD_ERRORS * float(square.std()) / 300**0.5 + 0.1 * expected


def test_the_lens_compares_with_theory_and_with_infinite_width():
    looked_at = tangent_resnet()
    reading = read(looked_at)
    assert reading.seed_diagonals.shape == (8, 4) and reading.limit_correlations.shape == (5, 5)
    variance, error = reading.seed_variance
    assert variance > 0 and error > 0 and reading.predicted_variance > 0
    facts = dict(tangent_section(reading).facts)
    told = facts["relative variance over 8 seeds (branches, one output)"]
    assert told.startswith(f"{variance:.2g} ± ") and "theory expects" in told
    assert "distance from the infinite-width kernel (correlations)" in facts


@pytest.mark.slow
def test_a_wider_network_is_nearer_to_its_limit():
    near, far = (sum(read(tangent_resnet(width, seed=s)).limit_distance for s in range(3)) for width in (128, 8))
    assert near < far / 2  # distances fall like 1/√width: a factor 4


def test_the_limit_is_the_kernel_of_these_branches():
    looked_at = tangent_resnet()
    signal = SignalLens()(looked_at, Randomness(0), silent)
    limit = limit_of(looked_at.network, signal)
    units = nn.functional.normalize(looked_at.batch.inputs)
    angles = torch.acos((units @ units.T).clamp(-1, 1))
    same = infinite_resnet(torch.full((3,), 0.25, dtype=torch.float64), 2)
    kernel = ResNetKernel(depth=3, branch_depth=2, branch_scale=0.5).ntk(looked_at.batch.inputs)
    scale = kernel.diagonal().sqrt()
    assert_close(limit_correlations(same, angles), kernel / scale[:, None] / scale, relative=1e-6)
    measured = infinite_resnet(signal.branch_ratios.square(), 2)
    assert limit.depth == 3 and torch.equal(limit_correlations(limit, angles), limit_correlations(measured, angles))


@pytest.mark.parametrize("training", [False, True])
def test_branches_that_normalise_have_no_theory_but_vary(training):
    reading = read(subject(training))
    assert math.isnan(reading.predicted_variance) and math.isnan(reading.limit_distance)
    assert reading.seed_variance[0] > 0


def test_without_branches_nothing_is_compared():
    reading = read(Subject(nn.Linear(3, 2), Batch(noise(4, 3), torch.arange(4) % 2), "chain"))
    assert not reading.seed_diagonals.numel() and "no theory to compare" in reading.notes[-1]
    assert math.isnan(reading.seed_variance[0])


def test_a_costly_model_is_not_redrawn(monkeypatch):
    monkeypatch.setattr("skiplens.graph.lens.operations_of", lambda model, batch: OPERATIONS / 100)
    reading = read(subject())
    assert not reading.seed_diagonals.numel() and "8 redraws of this model would take too long" in reading.notes[-1]


def test_the_variance_over_seeds_and_its_error():
    """One sample whose kernel is 1 … 6: variance 3.5 over mean 3.5²; the jackknife by hand."""
    values = torch.arange(1.0, 7.0)
    reading = read(subject())
    reading = type(reading)(**{**reading.values(), "seed_diagonals": values[:, None]})
    left_out = [values[values != v] for v in values]
    estimates = torch.stack([v.var() / v.mean() ** 2 for v in left_out])
    assert reading.seed_variance[0] == pytest.approx(3.5 / 3.5**2)
    assert reading.seed_variance[1] == pytest.approx(
        float((5 / 6 * (estimates - estimates.mean()).square().sum()).sqrt())
    )


def test_the_limit_of_this_model_stands_beside_its_kernel():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Conv2d(1, 32, 3), nn.Tanh(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(32, 2))
    inputs = noise(5, 36).view(5, 1, 6, 6)
    reading = read(Subject(model, Batch(inputs, torch.arange(5) % 2), "images"))
    limit = sl.infinite_width(model, inputs)
    torch.testing.assert_close(reading.module_limit, 2 * limit.ntk(inputs).double(), rtol=1e-6, atol=1e-9)
    compared = limit.compare(model, inputs)
    assert reading.module_limit_deviation == pytest.approx(compared.deviation, rel=1e-3)
    assert reading.depth_steps == ()  # the mean over positions stands between nonlinearity and matrix
    facts = dict(tangent_section(reading).facts)
    assert facts["this model at infinite width"].endswith("away (norm of the kernel)")
    points = kernel_against_angle(reading).marks[1]
    assert points.name == "this model at infinite width" and len(points.y) == 10


def test_depth_scales_are_told_and_a_model_without_limit_is_none_the_worse():
    batch = Batch(noise(4, 6), torch.arange(4) % 2)
    reading = read(Subject(nn.Sequential(nn.Linear(6, 16), nn.Tanh(), nn.Linear(16, 2)), batch, "chain"))
    assert reading.depth_steps == ("tanh → linear",) and reading.depth_scales.shape == (1, 4)
    assert "depth scale of tanh → linear" in dict(tangent_section(reading).facts)
    reading = read(Subject(nn.Sequential(nn.Linear(6, 16), nn.Softmax(1), nn.Linear(16, 2)), batch, "chain"))
    assert not reading.module_limit.numel() and math.isnan(reading.module_limit_deviation)
    assert "aten.softmax in module '1' has no infinite-width limit" in reading.no_limit
    section = tangent_section(reading)
    assert dict(section.facts)["this model at infinite width"] == f"no limit beside it: {reading.no_limit}"
    assert not section.rows and not any("limit" in figure.name for figure in section.figures)


def test_variance_and_correlation_by_depth_stand_beside_the_kernel():
    """Of linear, ReLU, linear by the arc-cosine formula (Cho and Saul 2009)."""
    torch.manual_seed(0)
    model, inputs = nn.Sequential(nn.Linear(6, 16), nn.ReLU(), nn.Linear(16, 2)).double(), noise(4, 6).double()
    reading = read(Subject(model, Batch(inputs, torch.arange(4) % 2), "chain"))
    gains = [float(layer.weight.detach().square().mean()) for layer in (model[0], model[2])]
    offsets = [float(layer.bias.detach().square().mean()) for layer in (model[0], model[2])]
    a, c, b = (gains[0] * float(inputs[i] @ inputs[j]) + offsets[0] for i, j in ((0, 0), (0, 1), (1, 1)))
    angle = math.acos(c / math.sqrt(a * b))
    rectified = (math.sin(angle) + (math.pi - angle) * math.cos(angle)) / math.pi
    last = [16 * gains[1] * value / 2 + offsets[1] for value in (a, math.sqrt(a * b) * rectified, b)]
    wanted = [(a, math.cos(angle)), (a / 2, rectified), (last[0], last[1] / math.sqrt(last[0] * last[2]))]
    assert_close(reading.limit_maps, torch.tensor(wanted, dtype=torch.float64), relative=1e-9)
    section = tangent_section(reading)
    assert [row["operation at infinite width"] for row in section.rows] == ["linear 0", "relu 1", "linear 2"]
    assert f"correlation of two samples {in_words(wanted[0][1])} to" in dict(section.facts)[DEPTH]
    correlation, variance = section.figures[3:]
    assert correlation.marks[0].y == numbers(reading.limit_maps[:, 1]) and variance.y_log
    assert correlation.marks[1].value == 1 and variance.marks[1].value == float(reading.depth_scales[0, 1])


def test_a_limit_that_would_take_too_long_says_so():
    model = nn.Sequential(nn.Conv2d(1, 4, 1), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(4, 2))
    batch = Batch(torch.zeros(2, 1, 96, 96), torch.arange(2))
    assert limit_of_module(Subject(model, batch, "images"), batch, 2) == {
        "no_limit": "it would take too long: 84,934,656 numbers for each pair of samples."
    }


def test_means_over_points_that_would_take_too_long_say_so(monkeypatch):
    """Three blocks with batch norm in training mode behind a ReLU of a sum took six minutes for 16 small images."""
    layer = {"f": nn.Linear(3, 3), "g": nn.Linear(3, 3), "h": nn.Linear(3, 2)}
    model = Formula(lambda m, x: m.h(torch.relu(torch.relu(m.f(x)) + m.g(x))), **layer)
    batch = Batch(noise(4, 3), torch.arange(4))
    assert "module_limit" in limit_of_module(Subject(model, batch, "sum"), batch, 2)
    monkeypatch.setattr(comparison, "DRAWN_ENTRIES", 2**10)
    said = limit_of_module(Subject(model, batch, "sum"), batch, 2)["no_limit"]
    assert "it would take too long: a mean over" in said
    assert draws.MOST_DRAWN.get() == math.inf  # nobody else is held to it


DEPTH = "through the depth at infinite width"
