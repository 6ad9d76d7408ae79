import math

import pytest
import scipy.stats
import torch

from skiplens.base.errors import InvalidInputError
from skiplens.papers.statistics import LEVEL, Band, Interval, decide, decide_correction, exactly, over_seeds, slope


def interval(value: float, half_width: float) -> Interval:
    return Interval(torch.tensor(value), torch.tensor(half_width))


def test_an_interval_is_students():
    values = [1.0, 2.0, 4.0, 5.0]
    found = over_seeds(values)
    expected = scipy.stats.t.interval(1 - LEVEL, 3, loc=3.0, scale=scipy.stats.sem(values))
    assert (float(found.low), float(found.high)) == pytest.approx(expected)


def test_many_numbers_share_the_chance_of_a_miss(generator):
    """With a level of 1e-4 in all, 2000 experiments of 50 numbers each miss at most a few times."""
    draws = torch.randn(2000, 6, 50, generator=generator)
    missed = sum(bool((over_seeds(one).value.abs() > over_seeds(one).half_width).any()) for one in draws)
    assert missed <= scipy.stats.poisson.ppf(1 - 1e-6, 2000 * LEVEL)
    alone, together = over_seeds(draws[0][:, 0]), over_seeds(draws[0])
    assert together.half_width[0] > alone.half_width


def test_numbers_elsewhere_may_share_the_chance_too(generator):
    draws = torch.randn(8, 3, generator=generator)
    apart = torch.stack([over_seeds(column, comparisons=3).half_width for column in draws.T])
    assert torch.allclose(apart, over_seeds(draws).half_width)


def test_a_closed_form_has_no_uncertainty():
    found = exactly([0.5, 2.0])
    assert found.low.tolist() == found.high.tolist() == [0.5, 2.0]
    assert decide(exactly(1.0), Band(1.0, 1.0), "").verdict == "reproduced"
    assert decide(exactly(1.0 + 1e-12), Band(1.0, 1.0), "").verdict == "differs"


def test_one_seed_is_no_interval():
    with pytest.raises(InvalidInputError, match="needs at least 2 seeds, got 1"):
        over_seeds([1.0])


@pytest.mark.parametrize(
    ("value", "half_width", "word"),
    [
        (1.0, 0.05, "reproduced"),
        (1.04, 0.05, "reproduced"),
        (1.2, 0.05, "differs"),
        (1.08, 0.05, "not attempted"),
        (1.0, 0.3, "not attempted"),
    ],
)
def test_an_interval_decides_only_if_it_lies_on_one_side(value, half_width, word):
    judgement = decide(interval(value, half_width), Band.around(1.0, 0.1), "Compared.")
    assert judgement.verdict == word
    assert (judgement.ours, judgement.uncertainty, judgement.tolerance) == pytest.approx((value, half_width, 0.1))
    assert ("too wide to decide" in judgement.explanation) == (word == "not attempted")


@pytest.mark.parametrize(
    ("value", "half_width", "word"),
    [
        (1.0, 0.05, "reproduced"),
        (2.0, 0.05, "corrected"),
        (3.0, 0.05, "differs"),
        (1.1, 0.05, "not attempted"),
        (2.1, 0.05, "not attempted"),
    ],
)
def test_a_correction_needs_the_printed_one_rejected_and_the_right_one_held(value, half_width, word):
    found = interval(value, half_width)
    printed, right = (found, Band.around(1.0, 0.1)), (found, Band.around(2.0, 0.1))
    assert decide_correction(printed, right, "Compared.").verdict == word


def test_the_worst_of_many_is_reported():
    found = Interval(torch.tensor([0.0, 0.5, -0.1]), torch.tensor([0.1, 0.1, 0.1]))
    judgement = decide(found, Band.around(0.0, 0.2), "Compared.")
    assert judgement.verdict == "differs" and judgement.ours == pytest.approx(0.5)


def test_one_of_many_inside_does_not_make_them_all():
    found = Interval(torch.tensor([0.0, 0.19]), torch.tensor([0.1, 0.1]))
    assert decide(found, Band.around(0.0, 0.2), "Compared.").verdict == "not attempted"


def test_a_bound_has_one_side_and_may_be_lenient():
    assert decide(interval(-9.0, 1.0), Band(-math.inf, 0.0), "Compared.").verdict == "reproduced"
    assert Band.between(1.0, 2.0, 0.1) == Band(0.9, 2.1, 0.1)


def test_slopes_are_those_of_lines():
    x = [1.0, 2.0, 4.0]
    y = torch.tensor([[3.0, 5.0, 9.0], [0.0, -1.0, -3.0]])
    assert slope(x, y).tolist() == pytest.approx([2.0, -1.0])
