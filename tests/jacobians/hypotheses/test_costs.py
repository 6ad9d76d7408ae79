"""Losses of torch in the words of the theory, with values against torch."""

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from tests.jacobians.systems.reference import LABELS_A, cosines, sines
from tests.tolerances import assert_close


def describe(loss, targets, outputs=(4, 3)):
    from skiplens.jacobians.hypotheses.chain import describe_cost

    return describe_cost(loss, outputs, targets)


@pytest.mark.parametrize(
    ("loss", "plain"),
    [("cross_entropy", F.cross_entropy), (nn.CrossEntropyLoss(), F.cross_entropy), ("mse", F.mse_loss)],
)
def test_costs_have_the_value_of_torch(loss, plain):
    targets = cosines(4, 3) if plain is F.mse_loss else LABELS_A
    facts = describe(loss, targets)
    assert_close(facts.cost(sines(4, 3).T), plain(sines(4, 3), targets))
    assert (facts.is_convex, facts.has_lipschitz_gradient, facts.is_dominated) == (True, True, True)


def test_functions_are_known():
    assert describe(F.cross_entropy, LABELS_A).name == "cross-entropy"
    assert describe(F.mse_loss, cosines(4, 3)).cost is not None
    assert describe(nn.L1Loss(), cosines(4, 3)).has_lipschitz_gradient is False
    assert describe(F.huber_loss, cosines(4, 3)).is_dominated is True


def test_a_loss_of_ones_own_is_not_known():
    def mine(outputs, targets):
        return outputs.sum()

    facts = describe(mine, LABELS_A)
    assert (facts.name, facts.is_convex, facts.cost) == ("mine", None, None)


@pytest.mark.parametrize(
    "loss",
    [
        nn.CrossEntropyLoss(label_smoothing=0.1),
        nn.CrossEntropyLoss(weight=torch.ones(3)),
        nn.CrossEntropyLoss(reduction="sum"),
    ],
)
def test_losses_that_are_no_plain_mean_have_no_numbers(loss):
    facts = describe(loss, LABELS_A)
    assert facts.cost is None
    assert facts.is_convex


def test_targets_of_other_forms_have_no_numbers():
    assert describe("cross_entropy", LABELS_A, (4, 3, 5)).cost is None
    assert describe("cross_entropy", torch.tensor([0, -100, 1, 2])).cost is None
    assert describe("mse", LABELS_A).cost is None


def test_unknown_names_are_refused():
    from skiplens.base.errors import InvalidInputError

    with pytest.raises(InvalidInputError, match=r"There is no loss .croos_entropy.\. Did you mean cross_entropy"):
        describe("croos_entropy", LABELS_A)
