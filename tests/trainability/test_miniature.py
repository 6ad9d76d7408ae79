"""A training in small: which samples it goes round among, and how often each comes."""

import itertools

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

import skiplens as sl
from skiplens.base.randomness import Randomness
from skiplens.graph.batch import as_batch
from skiplens.trainability.pilot import FEWEST, LEAST_SAMPLES, MOST, PARTS, Miniature, rounds
from skiplens.training.source import source_of

RATES = 7


def numbered(samples, batch):
    """Samples that are their own number, in batches."""
    inputs = torch.arange(samples, dtype=torch.float64)[:, None]
    pairs = zip(inputs.split(batch), torch.zeros(samples).split(batch), strict=True)
    return source_of(list(pairs), None, Randomness(0), torch.device("cpu"))


def small(samples=1024, batch=64, steps=400, cost=68, epoch=None):
    source = numbered(samples, batch)
    first = next(source.batches(0))
    epoch = source.steps_per_epoch if epoch is None else epoch
    return Miniature(source, as_batch(first), steps=steps, cost=cost, rates=RATES, epoch=epoch)


def test_a_step_takes_a_quarter_of_a_batch_and_the_first_come_round_again():
    found = small()
    taken = list(itertools.islice(found.batches(0), 2 * found.steps_per_epoch))
    for number, batch in enumerate(taken):
        first = 64.0 * (number % found.steps_per_epoch)  # of the next batch, then of the first one again
        assert torch.equal(batch.inputs[:, 0], torch.arange(first, first + 16))


def test_few_batches_give_several_parts_each_and_a_short_one_none():
    found = small(2 * 64 + 10, 64, steps=40, epoch=40)
    assert found.parts == 4 and found.read == 3
    taken = [int(part.inputs[0, 0]) for part in itertools.islice(found.batches(0), 9)]
    assert taken == [0, 64, 16, 80, 32, 96, 48, 112, 0]


@given(st.integers(64, 4000), st.sampled_from([16, 32, 64]), st.integers(150, 2000), st.integers(20, 120))
def test_each_sample_comes_as_often_as_in_the_whole_training(samples, batch, steps, cost):
    found = small(samples, batch, steps, cost)
    often = found.longest / found.steps_per_epoch
    whole = steps / numbered(samples, batch).steps_per_epoch
    if FEWEST < found.steps_per_epoch < min(MOST, found.longest):
        parts = found.longest / whole  # as many as would be exact
        assert abs(found.steps_per_epoch - parts) <= 0.5
        assert often == pytest.approx(whole, rel=0.5 / (parts - 0.5))
    elif found.steps_per_epoch == FEWEST:
        assert often <= whole * 1.2
    else:
        assert often >= min(whole, 1)


@given(st.integers(1, 200), st.integers(14, 300), st.integers(1, 500))
def test_no_trial_goes_beyond_the_end_and_no_more_is_spent(batch, cost, steps):
    found = small(4 * batch, batch, steps, cost)
    assert found.cost <= cost * found.parts
    assert found.longest == 1 + sum(taken for _, taken in rounds(found.cost, RATES))
    assert found.longest <= steps or found.cost == RATES + 1


@pytest.mark.parametrize(("batch", "parts"), [(1, 1), (15, 1), (16, 2), (31, 3), (32, 4), (64, 4), (1000, 4)])
def test_a_part_has_enough_samples(batch, parts):
    found = small(4 * batch, batch)
    assert found.parts == parts <= PARTS
    sizes = {part.samples for part in itertools.islice(found.batches(0), 20)}
    assert len(sizes) == 1
    assert min(sizes) >= min(batch, LEAST_SAMPLES)


def test_what_never_ends_is_not_repeated_while_it_fits():
    found = small(cost=20, epoch=float("inf"))
    assert found.steps_per_epoch == found.longest <= MOST
    assert small(cost=500, epoch=float("inf")).steps_per_epoch == MOST


def test_a_forecast_of_endless_batches_meets_no_sample_twice():
    seen = []

    class Watched(nn.Linear):
        def forward(self, x):
            seen.append(x.detach().clone())
            return super().forward(x)

    def endless():
        for number in itertools.count():
            yield torch.full((32, 3), float(number)), torch.arange(32) % 2

    torch.manual_seed(0)
    found = sl.forecast(Watched(3, 2), endless(), cost=20)
    steps = [int(x[0, 0]) for x in seen if len(x) == 8]  # a quarter of 32
    longest = max(len(losses[~losses.isnan()]) for losses in found.losses)
    assert found.cost <= 20
    assert max(steps) == min(longest, 20) - 1  # a batch each, as far as they were kept


def test_trials_stand_for_the_whole_training():
    inputs = torch.randn(256, 5, generator=torch.Generator().manual_seed(0))
    torch.manual_seed(0)
    found = sl.forecast(nn.Linear(5, 2), (inputs, (inputs[:, 0] > 0).long()), steps=300)
    longest = max(int((~losses.isnan()).sum()) for losses in found.losses)
    assert found.stretch == pytest.approx(300 / longest)
    assert len(found.curve) == 300 and found.curve[-1] == pytest.approx(found.loss)
