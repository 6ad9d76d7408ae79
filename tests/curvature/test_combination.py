import pytest
import torch
import torch.nn.functional as F
from torch import nn

from skiplens.base.errors import InvalidInputError
from skiplens.curvature.operator import loss_operator
from tests.budget_calls import least_memory
from tests.curvature.cases import SAMPLES, classes, in_batches, multilayer
from tests.networks import Formula, noise


def contrastive(outputs, targets):
    """Every sample against all others: neither a mean nor a sum over samples."""
    return F.cross_entropy(outputs @ outputs.T, torch.arange(len(outputs)))


@pytest.mark.parametrize("samples", [1, 2, SAMPLES])
def test_functions_are_found_out_by_evaluation(samples):
    model, inputs = multilayer()
    inputs, targets = inputs[:samples], classes()[:samples]
    for function in (F.cross_entropy, lambda z, y: F.cross_entropy(z, y, reduction="sum")):
        operator = loss_operator(model, in_batches(inputs, targets, 3), loss=function)
        assert operator.loss == pytest.approx(function(model(inputs), targets).item(), rel=1e-12)


def test_models_that_return_their_loss_are_found_out_by_showing_samples_twice():
    inputs = noise(SAMPLES, 4)
    for reduce in (torch.mean, torch.sum):
        model = Formula(lambda m, x, labels, reduce=reduce: reduce((m.f(x) - labels) ** 2), f=nn.Linear(4, 1))
        targets = noise(SAMPLES, 1, seed=1)
        batches = [{"x": x, "labels": y} for x, y in in_batches(inputs, targets, 3)]
        expected = reduce((model.f(inputs) - targets) ** 2).item()
        assert loss_operator(model, batches, loss=None).loss == pytest.approx(expected, rel=1e-12)


def test_a_loss_that_couples_samples_takes_one_batch_only():
    model, inputs = multilayer()
    least = least_memory(lambda m: loss_operator(model, (inputs, classes()), loss=contrastive, memory=m))
    operator = loss_operator(model, (inputs, classes()), loss=contrastive, memory=least)
    assert operator.loss == pytest.approx(contrastive(model(inputs), None).item(), rel=1e-12)
    with pytest.raises(InvalidInputError, match=r"neither a mean nor a sum over samples, so those of 3 batches do not"):
        loss_operator(model, in_batches(inputs, classes(), 4), loss=contrastive)
