"""Searches for a learning rate: closed forms on a parabola, plain loops, hand-made curves."""

import copy
import itertools
import math

import numpy as np
import pytest
import torch
from torch import nn

from benchmarks.trainability import searches
from benchmarks.trainability.searches import SEARCHES, Training, range_test, short_grid, successive_halving
from benchmarks.trainability.tasks import BATCH, Task
from benchmarks.trainability.train import MOMENTUM

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


def test_a_training_is_gradient_descent_with_momentum(weight, parabola):
    training = Training(weight, parabola, "sgd", 0.03, 0)
    training.run(12)
    training.run(8)
    assert training.losses == pytest.approx(descent(0.03, 20), rel=1e-10)
    assert training.reached == pytest.approx(np.mean(descent(0.03, 20)[-7:]), rel=1e-10)  # the last third
    assert weight.weight.item() == 1.5


def test_adam_takes_first_steps_of_the_rate(weight, parabola):
    training = Training(weight, parabola, "adam", 0.1, 0)
    training.run(2)
    assert training.losses[1] == pytest.approx(1.4**2, rel=1e-6)  # its epsilon is 1e-8 of a gradient of 3


def test_a_training_that_diverged_stays_infinite(weight, parabola):
    training = Training(weight, parabola, "sgd", 1e200, 0)
    training.run(30)
    assert training.reached == math.inf and len(training.losses) == 30


def test_an_unknown_optimizer_is_refused(weight):
    with pytest.raises(ValueError, match="There is no optimizer 'lion'; there are sgd and adam"):
        searches.make_optimizer("lion", weight, 0.1)


def test_the_short_grid_takes_the_rate_that_came_furthest(weight, parabola):
    found = short_grid(weight, parabola, "sgd", 0, steps=60, rates=RATES)
    ends = {rate: np.mean(descent(rate, 60)[-10:]) for rate in RATES}
    best = min(ends, key=lambda rate: ends[rate])
    assert (found.rate, found.cost) == (best, 420)
    assert found.score == pytest.approx(-ends[best], rel=1e-9)


@pytest.mark.parametrize(("cost", "tried"), [(20, RATES[::2]), (70, RATES), (200, RATES)])
def test_successive_halving_keeps_the_better_half(weight, parabola, cost, tried):
    rounds, left, spent = math.ceil(math.log2(len(tried))), list(tried), 0
    steps = dict.fromkeys(tried, 0)
    for number in range(rounds):
        more = (cost - spent) // ((rounds - number) * len(left))
        for rate in left:
            steps[rate] += more
        spent += more * len(left)
        reached = {r: np.mean(descent(r, steps[r])[-min(10, math.ceil(steps[r] / 3)) :]) for r in left}
        left = sorted(left, key=lambda rate: reached[rate])[: math.ceil(len(left) / 2)]
    found = successive_halving(weight, parabola, "sgd", 0, cost=cost, rates=RATES)
    assert (found.rate, found.cost) == (left[0], spent) and 0.8 * cost < spent <= cost
    assert found.score == pytest.approx(-reached[left[0]], rel=1e-9)


def test_the_range_test_grows_exponentially_and_stops_at_four_times_the_best(weight, parabola):
    rates, losses = searches.ramp(Training(weight, parabola, "sgd", 1e-7, 0))
    assert rates == pytest.approx([1e-7 * 10 ** (8 * n / 100) for n in range(len(rates))])
    assert len(rates) < 100 and losses[-1] > 4 * min(losses) >= losses[-2]
    raw, w, velocity = [], 1.5, 0.0
    for rate in rates:
        raw.append(w * w)
        velocity = MOMENTUM * velocity + 2 * w
        w -= rate * velocity
    count = len(raw)
    weights = np.array([0.98 ** (count - 1 - n) for n in range(count)])
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
    found = range_test(weight, parabola, "sgd", 0, rule=rule)
    rates, losses = searches.ramp(Training(weight, parabola, "sgd", 1e-7, 0))
    assert found.rate == rates[searches.suggestion(rule, losses)]
    assert found.cost == len(rates) and found.score == -min(losses)


@pytest.mark.parametrize("name", SEARCHES)
def test_no_search_changes_the_model(name, parabola):
    model = nn.Sequential(nn.Linear(1, 4), nn.BatchNorm1d(4), nn.Dropout(0.2), nn.Linear(4, 1)).eval()
    before, state = copy.deepcopy(model.state_dict()), torch.get_rng_state()
    SEARCHES[name](model, parabola, "adam", 0)
    assert all(torch.equal(value, before[key]) for key, value in model.state_dict().items())
    assert torch.equal(torch.get_rng_state(), state) and not any(m.training for m in model.modules())
    assert all(parameter.grad is None for parameter in model.parameters())
