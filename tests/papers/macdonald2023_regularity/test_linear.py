"""Figure 1: the table of the theory, and the law of the singular values."""

import pytest
import torch

from skiplens.papers.macdonald2023_regularity.fig1 import LinearLayer, judge_law, judge_shift, limits, skip_spectra
from tests.papers.macdonald2023_regularity.readings import made
from tests.tolerances import STANDARD_ERRORS

TABLE = {"chain": (0.490070129263815, -1.04930614433406, 0.466467555725501), "skip": (13 / 12, 0.0, 1.08215826520769)}


@pytest.mark.parametrize("name", TABLE)
def test_limits_are_those_of_the_table(name):
    # the logarithm is singular at 0, where the quadrature is right to nine digits
    assert limits(name).tolist() == pytest.approx(TABLE[name], abs=1e-9)


def test_second_moments_are_exact_in_the_mean(seed):
    """E σ² is 1/3 without the skip and 4/3 with it, at any width: traces of A Aᵀ and (I + A)(I + A)ᵀ."""
    drawn = [skip_spectra(LinearLayer(width=20, replicate=replicate, seed=seed)) for replicate in range(200)]
    for name, expected in (("chain", 1 / 3), ("skip", 4 / 3)):
        moments = torch.stack([spectra[name].square().mean() for spectra in drawn])
        assert abs(moments.mean() - expected) < STANDARD_ERRORS * moments.std() / 200**0.5


def test_a_shift_downwards_is_no_success(seed):
    """The same spectra with their names exchanged."""
    drawn = [skip_spectra(LinearLayer(width=100, replicate=replicate, seed=seed)) for replicate in range(10)]
    right = [made("skip_spectra", spectra) for spectra in drawn]
    wrong = [made("skip_spectra", {"chain": spectra["skip"], "skip": spectra["chain"]}) for spectra in drawn]
    assert judge_shift(right).verdict == "reproduced"
    assert judge_shift(wrong).verdict == "differs"
    assert judge_law(wrong, "chain").verdict == "differs"
