import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from skiplens.base.errors import InvalidInputError
from skiplens.papers.li2016_shortcuts.hessian.spectrum import CountedSpectrum, listed_spectrum, spectrum_of
from tests.tolerances import assert_close

VALUES = [-3.0, -1.0, 0.5, 2.0, 4.0]


class CountedList(CountedSpectrum):
    """A known list, counted."""

    def __init__(self, values: list[float]) -> None:
        self._values = values

    @property
    def size(self) -> int:
        return len(self._values)

    @property
    def bound(self) -> float:
        return 1.5 * max(map(abs, self._values)) or 1.0

    def count_below(self, level: float) -> int:
        return sum(value < level for value in self._values)


def test_statistics_by_hand():
    spectrum = listed_spectrum(torch.tensor(VALUES).flip(0))
    assert (spectrum.smallest, spectrum.largest, spectrum.largest_absolute) == (-3, 4, 4)
    assert [spectrum.absolute_value(rank) for rank in range(1, 6)] == [0.5, 1, 2, 3, 4]
    assert (spectrum.condition_number, spectrum.full_condition_number) == (8, 8)
    assert (spectrum.index, spectrum.index_beyond_rounding) == (0.4, 0.4)
    assert spectrum.absolute_quantile(0.5) == 2 and spectrum.absolute_quantile(1.0) == 4


@settings(max_examples=40)
@given(st.lists(st.floats(-100, 100, allow_subnormal=False), min_size=1, max_size=25), st.floats(0.01, 1))
def test_counted_and_listed_spectra_agree(values, share):
    listed, counted = listed_spectrum(torch.tensor(values)), CountedList(values)
    near = pytest.approx
    absolute = 1e-14 * counted.bound  # four roundings of the bound, and the middle of the interval
    assert counted.size == listed.size and counted.index == listed.index
    assert counted.smallest == near(listed.smallest, rel=0, abs=absolute)
    assert counted.largest == near(listed.largest, rel=0, abs=absolute)
    assert counted.absolute_quantile(share) == near(listed.absolute_quantile(share), rel=0, abs=absolute)


def test_the_search_ends_where_no_number_is_left_between():
    least = 5e-324  # its accuracy is zero
    spectrum = CountedList([-least, least])
    assert abs(spectrum.smallest + least) <= least and abs(spectrum.largest - least) <= least


def test_multiplicities_repeat_values():
    spectrum = listed_spectrum(torch.tensor([2.0, -1.0]), torch.tensor([3, 2]))
    assert spectrum.expanded().tolist() == [-1, -1, 2, 2, 2]
    assert spectrum.size == 5 and spectrum.count_below(0.0) == 2 and spectrum.eigenvalue(3) == 2


@pytest.mark.parametrize("size", [1, 9, 10, 11, 99, 100, 101, 1600, 9600])
def test_quantile_is_the_nearest_rank(size):
    spectrum = listed_spectrum(torch.arange(1.0, size + 1))
    assert spectrum.absolute_quantile(0.1) == math.ceil(size / 10)


def test_quantile_is_not_moved_by_the_rounding_of_a_product():
    assert 0.07 * 100 > 7  # 7.000000000000001
    assert listed_spectrum(torch.arange(1.0, 101)).absolute_quantile(0.07) == 7


def test_rounding_below_zero_does_not_count_as_negative():
    spectrum = listed_spectrum(torch.tensor([-1e-13, -1e-8, 1.0, 1.0]))
    assert spectrum.index == 0.5 and spectrum.index_beyond_rounding == 0.25


def test_zero_quantile_and_zero_matrix():
    assert listed_spectrum(torch.tensor([0.0, 1.0])).condition_number == math.inf
    assert math.isnan(listed_spectrum(torch.zeros(4)).condition_number)


def test_spectrum_of_a_matrix_is_in_float64(generator):
    A = torch.randn(6, 6, generator=generator, dtype=torch.float32)
    spectrum = spectrum_of(A + A.T)
    assert spectrum.values.dtype == torch.float64
    assert_close(spectrum.values.sum(), (A + A.T).double().trace())


@pytest.mark.parametrize("rank", [0, 6])
def test_rank_outside(rank):
    with pytest.raises(InvalidInputError, match="Ranks count from 1 to the size 5; got"):
        listed_spectrum(torch.tensor(VALUES)).eigenvalue(rank)


def test_wrong_arguments():
    with pytest.raises(InvalidInputError, match=r"share of a quantile must lie in \(0, 1\]; got 0"):
        listed_spectrum(torch.tensor(VALUES)).absolute_quantile(0.0)
    with pytest.raises(InvalidInputError, match="at least one eigenvalue"):
        listed_spectrum(torch.zeros(0))
    with pytest.raises(InvalidInputError, match="matrix entries hold inf"):
        spectrum_of(torch.full((2, 2), math.inf))
