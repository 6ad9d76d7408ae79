import math

import pytest
import torch

from skiplens.base.errors import InvalidInputError
from skiplens.papers.li2016_shortcuts.small_weights import separation, small_weight_network
from tests.papers.li2016_shortcuts.points import centre_hit, fibonacci, random_points
from tests.tolerances import assert_close


@pytest.mark.parametrize(("points", "rho"), [(fibonacci, 0.891072250243255), (centre_hit, 0.765366864730180)])
def test_separation_of_the_reference_cases(points, rho):
    assert_close(torch.tensor(separation(*points()).distance), torch.tensor(rho))


def test_separation_by_two_loops(generator, monkeypatch):
    x, y = random_points(9, 4, generator), random_points(9, 4, generator)
    named = [*((f"input {i}", i, p) for i, p in enumerate(x)), *((f"target {i}", i, p) for i, p in enumerate(y))]
    pairs = [((p - q).norm().item(), a, b) for a, i, p in named for b, j, q in named if i != j]
    expected = min(pairs)
    monkeypatch.setattr("skiplens.papers.li2016_shortcuts.small_weights._ROWS_AT_ONCE", 40)  # several blocks
    found = separation(x, y)
    assert found.distance == pytest.approx(expected[0], rel=1e-12)
    assert {found.first, found.second} == set(expected[1:])


def test_a_sample_may_already_be_at_its_target(generator):
    x, y = random_points(4, 3, generator), random_points(4, 3, generator)
    y[2] = x[2]
    built = small_weight_network(x, y, step=0.1)
    assert built.path_lengths[2] == 0 and built.fit_error < 1e-12


def _points(change):
    x, y = fibonacci()
    change(x, y)
    return x, y


def _repeat_target(x, y):
    y[3] = y[1]


def _repeat_input(x, y):
    x[4] = x[0]


def _nan(x, y):
    x[0, 0] = math.nan


@pytest.mark.parametrize(("points", "message"), [
    (_points(_repeat_target), "target 1 and target 3 are 0 apart.*share a label.*surrogate_targets"),
    (_points(_repeat_input), "input 0 and input 4 are 0 apart.*Remove repeated inputs"),
    (_points(_nan), "inputs must be finite and of norm 1; the worst norm differs from 1 by nan"),
    ((2 * fibonacci()[0], fibonacci()[1]), "worst norm differs from 1 by 1.*Divide each row by its norm"),
    ((torch.eye(2), torch.eye(2).flip(0)), "have 2 dimensions; paths that avoid each other need at least 3"),
    ((fibonacci()[0][:5], fibonacci()[1]), r"same shape; got \(5, 3\) and \(6, 3\)"),
    ((torch.zeros(0, 3), torch.zeros(0, 3)), r"floating-point matrix \(samples, width\); got shape \(0, 3\)"),
])  # fmt: skip
def test_points_that_theorem_1_does_not_cover(points, message):
    with pytest.raises(InvalidInputError, match=message):
        small_weight_network(*points, step=0.1)
