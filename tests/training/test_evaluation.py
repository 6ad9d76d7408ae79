import copy

import pytest
import torch
import torch.nn.functional as F

from skiplens.training.callbacks import evaluate
from tests.training.networks import Point, noisy_network, samples


def test_loss_and_accuracy_are_means_over_samples_whatever_the_batches():
    model, (inputs, targets) = noisy_network(), samples()
    reference = copy.deepcopy(model).eval()
    outputs = reference(inputs).detach()
    for size in (1, 5, 22, 100):
        found = evaluate(model, (inputs, targets), batch_size=size)
        assert found.loss == pytest.approx(float(F.cross_entropy(outputs, targets)), rel=1e-13)
        assert found.accuracy == float((outputs.argmax(1) == targets).double().mean())
        assert found.samples == 22
    pieces = [(inputs[:3], targets[:3]), (inputs[3:], targets[3:])]
    assert evaluate(model, pieces).loss == pytest.approx(found.loss, rel=1e-13)


def test_the_model_stays_in_its_mode():
    model = noisy_network().train()
    before = copy.deepcopy(model.state_dict())
    evaluate(model, samples())
    assert model.training and all(torch.equal(before[name], value) for name, value in model.state_dict().items())


def test_regression_has_no_accuracy():
    found = evaluate(Point(torch.tensor([1.0, 2.0])), (torch.zeros(4, 1), torch.zeros(4, 2)), loss="half_squared_error")
    assert found.accuracy is None and found.loss == 2.5


def test_batch_statistics_are_those_of_the_batches_looked_at():
    model = torch.nn.Sequential(torch.nn.BatchNorm1d(4), torch.nn.Linear(4, 3))
    inputs, targets = samples()
    before = copy.deepcopy(model.state_dict())
    found = evaluate(model, (inputs, targets), batch_size=11, statistics="batch")
    halves = [(half - half.mean(0)) / (half.var(0, unbiased=False) + 1e-5).sqrt() for half in inputs.split(11)]
    outputs = model[1](torch.cat(halves)).detach()
    assert found.loss == pytest.approx(float(F.cross_entropy(outputs, targets)), rel=1e-12)
    assert found.loss != evaluate(model, (inputs, targets)).loss
    assert all(torch.equal(before[name], value) for name, value in model.state_dict().items())


def test_a_loss_may_be_a_function_and_comes_by_keyword():
    model, data = noisy_network(), samples()
    found = evaluate(model, data, loss=F.cross_entropy, batch_size=5)
    assert found.loss == pytest.approx(evaluate(model, data).loss, rel=1e-13)
    with pytest.warns(DeprecationWarning, match=r"evaluate\(model, data, loss\) is the order of old"):
        assert evaluate(model, data, "cross_entropy") == evaluate(model, data)
