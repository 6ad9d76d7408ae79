import itertools
import math

import pytest
import torch

from skiplens.base.errors import InvalidInputError
from skiplens.paths.weights import log_path_counts, path_counts
from tests.tolerances import assert_close


def enumerated(depth, width, inputs):
    """Walk every path: an input feature, a unit of layer 1, then skip or take one of `width` units in each block."""
    counts = [0] * (depth + 1)
    for _ in itertools.product(range(inputs), range(width)):
        for choices in itertools.product([None, *range(width)], repeat=depth - 1):
            counts[1 + sum(unit is not None for unit in choices)] += 1
    return counts[1:]


@pytest.mark.parametrize(("depth", "width", "inputs"), [(4, 2, 3), (1, 5, 2), (6, 3, 1), (10, 1, 2)])
def test_counts_equal_enumeration(depth, width, inputs):
    assert path_counts(depth, width, inputs) == enumerated(depth, width, inputs)


def test_counts_are_the_coefficients_of_the_network_with_equal_weights():
    depth, width, inputs, t = 7, 3, 2, 0.25
    value = sum(count * t**r for r, count in enumerate(path_counts(depth, width, inputs), start=1))
    assert value == inputs * width * t * (1 + width * t) ** (depth - 1)


@pytest.mark.parametrize("depth", [1, 2, 30, 400])
def test_logs_of_counts(depth):
    expected = torch.tensor([math.log(count) for count in path_counts(depth, 3, 7)])
    assert_close(log_path_counts(depth, 3, 7), expected, relative=1e-14)


def test_a_million_layers():
    logs = log_path_counts(10**6, 2)
    # the counts of all lengths add up to n (1 + n)^(p - 1)
    assert torch.logsumexp(logs, 0).item() == pytest.approx(math.log(2) + (10**6 - 1) * math.log(3), rel=1e-14)


def test_sizes_must_be_positive():
    with pytest.raises(InvalidInputError, match="Width and inputs must be at least 1; got width=0, inputs=1"):
        path_counts(3, 0)
