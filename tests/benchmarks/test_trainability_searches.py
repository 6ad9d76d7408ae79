"""Searches for a learning rate: closed forms on a parabola, plain loops, hand-made curves."""

import copy
import itertools
import math

import numpy as np
import pytest
import torch
from torch import nn

from benchmarks.trainability import searches
from benchmarks.trainability.networks import Network
from benchmarks.trainability.searches import range_test, short_grid, successive_halving
from benchmarks.trainability.tasks import BATCH, Task
from benchmarks.trainability.train import MOMENTUM, Grid

RATES = (0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0)


@pytest.fixture
def parabola():
    """One weight w, inputs 1, targets 0: the loss is w², every mini-batch is the same."""
    return Task("parabola", torch.ones(BATCH, 1), torch.zeros(BATCH, 1), 1)


@pytest.fixture
def weight():
    model = nn.Linear(1, 1, bias=False)
    nn.init.constant_(model.weight, 1.5)
    return model


def descent(rate, steps):
    """Losses w² of gradient descent with momentum, before each step."""
    w, velocity, losses = 1.5, 0.0, []
    for _ in range(steps):
        losses.append(w * w)
        velocity = MOMENTUM * velocity + 2 * w
        w -= rate * velocity
    return losses


CURVES = np.array([descent(rate, 60) for rate in RATES])


@pytest.mark.parametrize("optimizer", ["sgd", "adam"])
def test_trainings_of_the_grid_are_those_of_the_truth(optimizer):
    """The truth takes its steps for all rates at once, with its own formulas."""
    work = Task("digits", torch.randn(2 * BATCH, 3), torch.randint(0, 2, (2 * BATCH,)), 2)
    network = Network("toy", "family", "digits", lambda: nn.Linear(3, 2))
    found = searches.grid_losses(network, work, optimizer, seed=1, batches=5)
    grid, stream = Grid(network, optimizer, (1,), "cpu"), work.batches(5)
    wanted = [grid.step(*(tensor[None] for tensor in next(stream)))[0].numpy() for _ in range(60)]
    # The rates of the truth are float32, and 60 steps multiply what this rounds.
    assert found == pytest.approx(np.stack(wanted, 1), rel=1e-5)


def test_what_diverged_reached_nothing():
    assert searches.reached([1.0, math.nan, 0.1]) == searches.reached([]) == math.inf
    assert searches.reached([9.0, 9.0, 9.0, 2.0, 1.0]) == 1.5  # the last third
    assert searches.reached([9.0] * 60 + [1.0] * 10) == 1.0


def test_an_unknown_optimizer_is_refused(weight):
    with pytest.raises(ValueError, match="There is no optimizer 'lion'; there are sgd and adam"):
        searches.make_optimizer("lion", weight, 0.1)


def test_the_short_grid_takes_the_rate_that_came_furthest():
    ends = {rate: np.mean(curve[-10:]) for rate, curve in zip(RATES, CURVES, strict=True)}
    best = min(ends, key=lambda rate: ends[rate])
    assert short_grid(RATES, CURVES) == searches.Found(best, -ends[best], 420)


@pytest.mark.parametrize(("cost", "tried"), [(20, RATES[::2]), (70, RATES), (200, RATES)])
def test_successive_halving_keeps_the_better_half(cost, tried):
    """By training networks on, round by round."""
    curves = {rate: [] for rate in tried}
    left, rounds = list(tried), math.ceil(math.log2(len(tried)))
    for number in range(rounds):
        spent = sum(map(len, curves.values()))
        more = (cost - spent) // ((rounds - number) * len(left))
        for rate in left:
            curves[rate] = descent(rate, len(curves[rate]) + more)
        left = sorted(left, key=lambda rate: searches.reached(curves[rate]))[: math.ceil(len(left) / 2)]
    spent = sum(map(len, curves.values()))
    assert successive_halving(RATES, CURVES, cost=cost) == searches.Found(
        left[0], -searches.reached(curves[left[0]]), spent
    )
    assert 0.8 * cost < spent <= cost


def test_halving_needs_losses_enough():
    with pytest.raises(ValueError, match="1000 steps need 47 losses of a rate; there are 20"):
        successive_halving(RATES, CURVES[:, :20], cost=1000)


def test_the_range_test_grows_exponentially_and_stops_at_four_times_the_best(weight, parabola):
    rates, losses = searches.ramp(weight, parabola, "sgd", 0)
    assert rates == pytest.approx([1e-7 * 10 ** (8 * n / 100) for n in range(len(rates))])
    assert len(rates) < 100 and losses[-1] > 4 * min(losses) >= losses[-2]
    rates, losses = searches.ramp(weight, parabola, "adam", 0)
    assert len(rates) == 100 and losses[-1] <= 4 * min(losses)  # its steps are too small to come so far


def test_losses_of_the_range_test_are_smoothed(weight, parabola):
    rates, losses = searches.ramp(weight, parabola, "sgd", 0)
    raw, w, velocity = [], 1.5, 0.0
    for rate in rates:
        raw.append(w * w)
        velocity = MOMENTUM * velocity + 2 * w
        w -= rate * velocity
    weights = 0.98 ** np.arange(len(raw))[::-1]
    assert losses[-1] == pytest.approx(np.dot(weights, raw) / weights.sum(), rel=1e-9)


def test_lengths_of_falling_subsequences_by_trying_all():
    losses = [3.0, 5.0, 4.0, 4.0, 1.0, 2.0, 0.5]

    def longest(end):
        return max(
            len(chosen) + 1
            for size in range(end + 1)
            for chosen in itertools.combinations(range(end), size)
            if all(losses[a] > losses[b] for a, b in itertools.pairwise([*chosen, end]))
        )

    assert searches.falling_lengths(losses) == [longest(end) for end in range(len(losses))]


def test_the_valley_is_entered_halfway_through_its_middle_third():
    flat, falling, rising = [1.0] * 30, [1 - n / 40 for n in range(1, 31)], [2.0] * 20
    losses = flat + falling + rising
    # Without the first ten points: the fall ends at 49, 31 places long, so 18 + 10 + 5.
    assert searches.suggestion("valley", losses) == 10 + 18 + 10 + 5
    assert searches.suggestion("valley", [1.0] * 40) == 10  # no valley: the first point that counts


def test_the_steepest_point_is_where_the_loss_falls_most():
    losses = [1.0] * 40 + [0.9, 0.6, 0.5] + [0.5] * 20
    assert searches.suggestion("steepest", losses) == 41 - 1  # from 1 to 0.6 over two places
    steep_at_the_start = [9.0, 2.0, *losses]
    assert searches.suggestion("steepest", steep_at_the_start) == 42


def test_a_range_test_that_is_too_short_advises_nothing():
    assert searches.suggestion("valley", [1.0] * 14) is None
    assert searches.suggestion("steepest", [1.0] * 11 + [math.nan] * 30) is None


@pytest.mark.parametrize("rule", ["valley", "steepest"])
def test_a_range_test_advises_a_rate_that_it_tried(weight, parabola, rule):
    rates, losses = searches.ramp(weight, parabola, "sgd", 0)
    place = searches.suggestion(rule, losses)
    assert range_test(rates, losses, rule=rule) == searches.Found(rates[place], -min(losses), len(rates))
    assert math.isnan(range_test(rates[:5], losses[:5], rule=rule).rate)


def test_the_range_test_leaves_the_model_as_it_was(parabola):
    model = nn.Sequential(nn.Linear(1, 4), nn.BatchNorm1d(4), nn.Dropout(0.2), nn.Linear(4, 1)).eval()
    before, state = copy.deepcopy(model.state_dict()), torch.get_rng_state()
    searches.ramp(model, parabola, "adam", 0)
    assert all(torch.equal(value, before[key]) for key, value in model.state_dict().items())
    assert torch.equal(torch.get_rng_state(), state) and not any(m.training for m in model.modules())
    assert all(parameter.grad is None for parameter in model.parameters())
