"""Figure 1: the law of the singular values against the theory's table and drawn matrices; how it is judged."""

import math

import pytest
import torch

from skiplens.papers.macdonald2023_regularity import fig1
from skiplens.papers.macdonald2023_regularity.fig1 import LinearLayer, limits, skip_spectra
from tests.papers.macdonald2023_regularity.readings import judged, made
from tests.tolerances import STANDARD_ERRORS

ROOT = math.sqrt(1 / 3)


def law(has_skip, scale=ROOT):
    from skiplens.papers.macdonald2023_regularity.fig1 import SingularValueLaw

    return SingularValueLaw(scale, has_skip)


TABLE = {
    False: {
        "support": (0.0, 1.15470053837925), "mean": 0.490070129263815, "square": 1 / 3, "log": -1.04930614433406,
        "median": 0.466467555725501, "above one": 0.0576688856224371,
    },
    True: {
        "support": (0.288675134594813, 1.88561808316413), "mean": 13 / 12, "square": 4 / 3, "log": 0.0,
        "median": 1.08215826520769, "above one": 0.565298671755617,
    },
}  # fmt: skip


@pytest.mark.parametrize("has_skip", [False, True])
def test_the_table(has_skip):
    found, expected = law(has_skip), TABLE[has_skip]
    assert found.support == pytest.approx(expected["support"], rel=1e-13)
    assert found.mean_of(torch.ones_like) == pytest.approx(1, rel=1e-11)
    assert found.mean_of(lambda sigma: sigma) == pytest.approx(expected["mean"], rel=1e-11)
    assert found.mean_of(torch.square) == pytest.approx(expected["square"], rel=1e-11)
    # without a skip the logarithm is singular at 0, where quadrature loses digits
    assert found.mean_of(torch.log) == pytest.approx(expected["log"], abs=1e-10 if has_skip else 1e-4)
    assert found.quantile(0.5) == pytest.approx(expected["median"], rel=1e-10)
    assert found.share_above(1.0) == pytest.approx(expected["above one"], rel=1e-10)


@pytest.mark.parametrize(
    ("scale", "low", "high"),
    [
        (0.2, 0.727919388033, 1.292181629852),
        (0.5, 0.369008729828, 1.760172593046),
        (0.9, 0.034140053606, 2.425862621160),
        (1.5, 0.0, 3.484994934990),
    ],
)
def test_other_supports(scale, low, high):
    assert law(True, scale).support == pytest.approx((low, high), rel=1e-10)
    assert law(True, scale).mean_of(torch.ones_like) == pytest.approx(1, rel=1e-6)
    if scale < 1:
        assert law(True, scale).mean_of(lambda sigma: sigma) == pytest.approx(1 + scale**2 / 4, rel=1e-9)
    assert law(True, scale).mean_of(torch.square) == pytest.approx(1 + scale**2, rel=1e-6)


@pytest.mark.parametrize("has_skip", [False, True])
def test_drawn_matrices(has_skip, generator):
    """Three matrices of width 500, within five of the theory's standard deviations over draws."""
    deviations = {False: (0.0003, 0.004, 0.0016), True: (0.0010, 0.0013, 0.0021)}[has_skip]
    found = law(has_skip)
    expected = found.mean_of(lambda sigma: sigma), TABLE[has_skip]["log"], found.quantile(0.5)
    for _ in range(3):
        A = (2 * torch.rand(500, 500, generator=generator) - 1) / math.sqrt(500)
        values = torch.linalg.svdvals(A + torch.eye(500) * has_skip)
        drawn = values.mean(), values.log().mean(), values.median()
        for one, limit, deviation in zip(drawn, expected, deviations, strict=True):
            assert abs(float(one) - limit) < 5 * deviation


def test_nothing_lies_outside_the_support():
    outside = torch.tensor([-0.5, 0.1, 2.0, 5.0])
    assert float(law(True).density(outside).abs().max()) < 1e-12
    assert float(law(False).density(torch.tensor([-0.5, 1.2])).abs().max()) == 0


def test_bad_arguments_are_refused():
    from skiplens.base.errors import InvalidInputError

    with pytest.raises(InvalidInputError, match=r"scale is 0\.0; a positive number"):
        law(True, 0.0)
    with pytest.raises(InvalidInputError, match=r"share is 1\.0; a number between 0 and 1"):
        law(True).quantile(1.0)


@pytest.mark.parametrize(("name", "has_skip"), [("chain", False), ("skip", True)])
def test_limits_are_those_of_the_table(name, has_skip):
    # the logarithm is singular at 0, where the quadrature is right to nine digits
    expected = [TABLE[has_skip][number] for number in ("mean", "log", "median")]
    assert limits(name).tolist() == pytest.approx(expected, abs=1e-9)


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
    assert judged(fig1, "shift", right).verdict == "reproduced"
    assert judged(fig1, "shift", wrong).verdict == "opposite"
    assert judged(fig1, "without_skip", wrong).verdict == "differs"
