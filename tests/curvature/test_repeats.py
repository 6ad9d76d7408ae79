import pytest
import torch
from torch import nn

from skiplens.base.errors import InvalidInputError, SkiplensError
from skiplens.curvature.operator import loss_operator
from tests.budget_calls import least_memory
from tests.curvature.cases import SAMPLES, classes, in_batches, multilayer
from tests.networks import Formula, noise
from tests.tolerances import assert_close


class Changing:
    """Batches that a function changes at every pass."""

    def __init__(self, batches, change):
        self.batches, self.change, self.passes = batches, change, 0

    def __iter__(self):
        self.passes += 1
        return iter(self.change(list(self.batches), self.passes))


def test_dropout_in_training_mode_is_explained():
    model, inputs = multilayer()
    noisy = nn.Sequential(nn.Dropout(0.5), model).train()
    with pytest.raises(SkiplensError, match=r"different losses.*Dropout in training mode draws anew.*model.eval\(\)"):
        loss_operator(noisy, (inputs, classes()), loss="cross_entropy")
    loss_operator(noisy.eval(), (inputs, classes()), loss="cross_entropy")


def test_a_model_that_draws_by_itself_is_explained():
    model = Formula(lambda m, x: m.f(x) + torch.rand(len(x), 3), f=nn.Linear(4, 3))
    with pytest.raises(SkiplensError, match=r"its forward pass draws or counts"):
        loss_operator(model, (noise(SAMPLES, 4), classes()), loss="cross_entropy")


@pytest.mark.parametrize("period", range(2, 7))
def test_a_model_that_draws_seldom_is_not_taken_for_a_loader_that_draws(period):
    calls = []

    def rule(m, x):
        calls.append(0)
        return m.f(x) + (len(calls) % period == 0)

    model = Formula(lambda m, x: rule(m, x) * x[:, :3], f=nn.Linear(4, 3))
    try:
        loss_operator(model, (noise(SAMPLES, 4), classes()), loss="cross_entropy")
    except SkiplensError as error:
        assert "its forward pass draws or counts" in str(error)


def test_a_loader_that_augments_is_explained():
    model, inputs = multilayer()
    batches = in_batches(inputs, classes(), 4)
    shifted = Changing(batches, lambda each, count: [(x + count, y) for x, y in each])
    with pytest.raises(InvalidInputError, match=r"Two passes over data.*model repeats itself.*list\(loader\)"):
        loss_operator(model, shifted, loss="cross_entropy")
    dropping = Changing(batches, lambda each, count: each[: 5 - count])
    with pytest.raises(InvalidInputError, match=r"Two passes over data"):
        loss_operator(model, dropping, loss="cross_entropy")


def test_a_loader_that_only_shuffles_is_fine_but_its_graphs_are_kept_all_or_not_at_all():
    model, inputs = multilayer()
    batches = in_batches(inputs, classes(), 2)
    turning = Changing(batches, lambda each, count: each[count % 5 :] + each[: count % 5])
    expected = loss_operator(model, batches, loss="cross_entropy")
    vector = noise(expected.size)
    least = least_memory(lambda m: loss_operator(model, batches, loss="cross_entropy", memory=m))
    for budget in (None, least, least + 15_000):
        operator = loss_operator(model, turning, loss="cross_entropy", memory=budget)
        assert operator.plan.kept in (0, 5)
        for _ in range(2):
            assert_close(operator @ vector, expected @ vector, 1e-10)
