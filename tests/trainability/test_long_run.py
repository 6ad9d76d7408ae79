"""The order of architectures for a long training, against brute force."""

import copy
import math

import numpy as np
import pytest
import torch
from torch import nn

from skiplens.base.errors import InvalidInputError
from skiplens.trainability import long_run_order
from skiplens.trainability.long_run import spread_of_slopes

SAMPLES = 6


def made(width):
    torch.manual_seed(width)
    return nn.Sequential(nn.Linear(4, width), nn.Tanh(), nn.Linear(width, 2))


def data():
    return torch.randn(SAMPLES, 4, generator=torch.Generator().manual_seed(0), dtype=torch.float64), torch.arange(6) % 2


def spread_by_hand(model):
    rows = [torch.autograd.functional.jacobian(lambda x: model(x).sum(), sample).numpy() for sample in data()[0]]
    values = np.linalg.eigvals(np.corrcoef(rows)).real.clip(0) + 1e-5
    return -np.sum(np.log(values) + 1 / values)


def test_ranks_of_size_and_spread_are_joined():
    models = {"narrow": made(3), "middle": made(8), "wide": made(30)}
    spreads = {name: spread_by_hand(model) for name, model in models.items()}
    places = {name: 1 + sum(other < own for other in spreads.values()) for name, own in spreads.items()}
    wanted = {name: math.log(size) + math.log(places[name]) for size, name in enumerate(models, 1)}
    found = long_run_order(models, data())
    assert found == pytest.approx(wanted)
    assert list(found.values()) == sorted(found.values(), reverse=True)


def test_samples_that_are_alike_count_as_little():
    alike = torch.ones(5, 3).cumsum(1).double()
    apart = torch.eye(5).double()
    assert spread_of_slopes(alike) < spread_of_slopes(apart)
    assert math.isnan(spread_of_slopes(alike * math.nan))


def test_a_network_without_numbers_is_last_of_its_size_and_nothing_changes():
    broken, fine = made(8), made(8)
    with torch.no_grad():
        broken[0].weight.fill_(math.nan)
    fine.eval()
    before, drawn = copy.deepcopy(fine.state_dict()), torch.get_rng_state()
    assert list(long_run_order({"broken": broken, "fine": fine}, data())) == ["fine", "broken"]
    assert all(torch.equal(value, before[name]) for name, value in fine.state_dict().items())
    assert torch.equal(torch.get_rng_state(), drawn) and not fine.training
    assert all(parameter.grad is None for parameter in fine.parameters())


@pytest.mark.parametrize(
    ("models", "samples", "words"),
    [
        ({"one": made(3)}, data(), "at least two"),
        ([made(3), made(4)], data(), "by name"),
        ({"a": made(3), "b": made(4)}, (torch.arange(12).reshape(6, 2), torch.arange(6)), "one floating tensor"),
        ({"a": made(3), "b": 3}, data(), "torch.nn.Module"),
    ],
)
def test_bad_input_is_one_sentence(models, samples, words):
    with pytest.raises(InvalidInputError, match=words):
        long_run_order(models, samples)
