import math

import pytest
import torch

from tests.tolerances import assert_close


@pytest.fixture(params=["square", "scaled square", "cross-entropy", "logistic"])
def cost(request, generator):
    from skiplens.jacobians.systems.costs import CrossEntropy, Logistic, SquareCost

    targets = torch.randn(3, 5, generator=generator)
    return {
        "square": SquareCost(targets),
        "scaled square": SquareCost(targets, 2 / 3),
        "cross-entropy": CrossEntropy(torch.tensor([0, 2, 1, 1, 0]), 3),
        "logistic": Logistic(torch.tensor([1.0, -1, 1, 1, -1])),
    }[request.param]


def outputs(cost, generator, scale=1.0):
    rows = 1 if cost.name == "logistic cost" else 3
    return scale * torch.randn(rows, 5, generator=generator)


def test_gradient_is_that_of_the_formula(cost, generator):
    Z = outputs(cost, generator, 2.0)
    if cost.name == "square cost":
        expected = cost.scale * (Z - cost.targets) / 5
    elif cost.name == "cross-entropy":
        expected = (Z.softmax(0) - torch.nn.functional.one_hot(cost.targets, 3).T) / 5
    else:
        expected = -cost.targets * torch.sigmoid(-cost.targets * Z) / 5
    assert_close(cost.gradient(Z), expected)


def test_constants_hold(cost, generator):
    for scale in (0.01, 0.3, 1.0, 5.0, 30.0):
        Z = outputs(cost, generator, scale)
        radius = float(Z.norm()) * (1 + 1e-12)
        value, square = float(cost(Z)), float(cost.gradient(Z).square().sum())
        hessian = torch.func.jacrev(torch.func.jacrev(cost))(Z).reshape(Z.numel(), -1)
        assert torch.linalg.matrix_norm(hessian, 2) <= cost.gradient_lipschitz * (1 + 1e-12)
        assert math.sqrt(square) <= cost.gradient_bound(radius) * (1 + 1e-12)
        assert math.sqrt(square) <= cost.gradient_bound(radius, value) * (1 + 1e-12)
        assert square >= cost.domination(radius) * value * (1 - 1e-12)
        assert value >= cost.floor(radius)


def test_the_mean_of_single_samples_is_the_cost(cost, generator):
    Z = outputs(cost, generator)
    singles = torch.stack([cost.of_sample(i)(Z[:, i : i + 1]) for i in range(5)])
    assert_close(singles.mean(), cost(Z))


@pytest.mark.parametrize(
    ("radius", "classes", "floor"),
    [(1.0, 2, 0.217621721581744), (2.0, 3, 0.159287685068442), (5.0, 10, 0.0452324883550041)],
)
def test_floors_of_cross_entropy(radius, classes, floor):
    from skiplens.jacobians.systems.costs import CrossEntropy

    cost = CrossEntropy(torch.tensor([0]), classes)
    assert cost.floor(radius) == pytest.approx(floor, rel=1e-12)
    best = torch.full((classes, 1), -1 / (classes - 1))
    best[0] = 1
    assert float(cost(best * radius / best.norm())) == pytest.approx(floor, rel=1e-12)


def test_the_peak_of_the_ratio():
    from skiplens.jacobians.systems.costs import RATIO_PEAK

    c = torch.linspace(1.2, 1.3, 100_001)
    assert float(((1 - torch.exp(-c)) ** 2 / c).max()) == pytest.approx(RATIO_PEAK / 2, rel=1e-10)
    assert pytest.approx(2 * 0.407264377589067, rel=1e-14) == RATIO_PEAK


def test_huge_outputs_have_no_domination_but_no_overflow():
    from skiplens.jacobians.systems.costs import CrossEntropy

    cost = CrossEntropy(torch.tensor([0]), 3)
    assert cost.domination(1e6) >= 0
    assert cost.domination(math.inf) == 0


@pytest.mark.parametrize(("labels", "classes"), [([0, 3], 3), ([-1, 0], 3), ([0, 0], 1)])
def test_bad_labels_are_refused(labels, classes):
    from skiplens.base.errors import InvalidInputError
    from skiplens.jacobians.systems.costs import CrossEntropy

    with pytest.raises(InvalidInputError, match="at least two classes and labels from 0"):
        CrossEntropy(torch.tensor(labels), classes)
