"""Readings of the start against brute force."""

import math

import numpy as np
import pytest
import torch
from torch import nn

from skiplens.graph.batch import as_batch
from skiplens.signal.layers import layer_states
from skiplens.trainability import features
from skiplens.trainability.features import left_out, start_features, trouble


def made(samples=40):
    torch.manual_seed(0)
    inputs = torch.randn(samples, 6)
    return inputs, (inputs[:, 0] > 0).long()


def looked_at(model, data):
    batch = as_batch(data)
    return start_features(model, batch, layer_states(model, batch))


def test_what_is_left_out_is_what_a_fit_on_the_others_misses(monkeypatch):
    inputs, targets = (tensor.numpy() for tensor in made())
    monkeypatch.setattr(features, "RIDGES", np.array([0.3]))
    centred = inputs - inputs.mean(0)
    ridge = 0.3 * (np.linalg.svd(centred)[1] ** 2).mean()
    wanted = np.eye(2)[targets]
    missed = 0.0
    for left in range(len(inputs)):
        others = np.arange(len(inputs)) != left
        x, y = centred[others], wanted[others]
        # the intercept has no ridge: it is one more column whose entry on the diagonal is zero
        columns = np.hstack([x, np.ones((len(x), 1))])
        weights = np.linalg.solve(columns.T @ columns + np.diag([ridge] * x.shape[1] + [0.0]), columns.T @ y)
        missed += ((wanted[left] - np.append(centred[left], 1.0) @ weights) ** 2).sum()
    share = missed / ((wanted - wanted.mean(0)) ** 2).sum()
    assert left_out(inputs, targets) == pytest.approx(share, rel=1e-9)


def test_features_that_say_nothing_leave_a_guess_and_those_that_say_all_leave_nothing():
    generator = np.random.default_rng(0)
    targets = np.arange(200) % 4
    assert left_out(np.ones((200, 5)), targets) == 1.0
    noise = left_out(generator.standard_normal((200, 5)), targets)
    assert noise == pytest.approx(1.0, abs=0.1)
    assert left_out(np.eye(4)[targets] + 0.01, targets) < 1e-3


def test_trouble_is_the_sum_of_its_signs():
    found = {"explained": 0.95, "shut": 0.3, "spread kept": -1.0, "signal ratio": 3.0}
    assert trouble(found) == pytest.approx(-0.05 / 0.1 + 0.3 / 0.2 + 1.0 / 2 + 3.0 / 2)
    for name, worse in (("explained", 1.1), ("shut", 0.6), ("spread kept", -3.0), ("signal ratio", 5.0)):
        assert trouble({**found, name: worse}) > trouble(found)
        assert math.isfinite(trouble({**found, name: math.nan}))
    assert trouble({**found, "signal ratio": 30.0}) == trouble({**found, "signal ratio": 8.0})


def test_a_network_that_is_blind_and_one_that_sees():
    torch.manual_seed(0)
    seeing, blind = nn.Sequential(nn.Linear(6, 5), nn.Tanh(), nn.Linear(5, 2)), None
    blind = nn.Sequential(nn.Linear(6, 5), nn.ReLU(), nn.Linear(5, 2))
    nn.init.constant_(blind[0].bias, -50.0)
    assert looked_at(blind, made())["explained"] == 1.0
    assert looked_at(seeing, made())["explained"] < 0.8
    assert looked_at(blind, made())["shut"] == 1.0


def test_places_in_samples_are_rows_too():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Embedding(7, 8), nn.Linear(8, 7))
    codes = torch.randint(0, 7, (16, 10))
    found = looked_at(model, (codes, codes))
    assert found["explained"] < 0.05  # the next symbol is the one at hand


def test_every_number_is_one_also_for_networks_that_are_none():
    model = nn.Sequential(nn.Linear(6, 5), nn.Linear(5, 2))
    with torch.no_grad():
        model[0].weight.fill_(1e30)
    assert all(not math.isinf(value) for value in looked_at(model, made()).values())
