import math

import torch

from skiplens.plots.figure import PALETTE, Band, Line, bundle
from skiplens.report.lenses import figures_of
from tests.report.test_verification import runs, verification

X = torch.tensor([1.0, 2.0, 3.0])


def test_a_bundle_is_the_mean_and_the_range_in_one_colour():
    band, line = bundle(X, torch.tensor([[1.0, 2, 3], [3.0, 6, 9]]), "both", 1)
    assert isinstance(band, Band) and isinstance(line, Line)
    assert line.y == (2.0, 4.0, 6.0) and band.low == (1.0, 2.0, 3.0) and band.high == (3.0, 6.0, 9.0)
    assert line.colour == band.colour == PALETTE[1] and line.name == "both" and band.name == ""


def test_on_a_logarithmic_axis_the_mean_is_geometric():
    _, line = bundle(X[:1], torch.tensor([[1.0], [100.0]]), "", 0, logarithmic=True)
    assert abs(line.y[0] - 10) < 1e-12


def test_it_is_drawn_where_all_rows_have_a_number():
    curves = torch.tensor([[1.0, 0.0, 3.0], [1.0, 2.0, math.nan]])
    assert bundle(X, curves, "", 0)[-1].x == (1.0, 2.0)
    assert bundle(X, curves, "", 0, logarithmic=True)[-1].x == (1.0,)


def test_one_curve_has_no_range():
    assert [type(mark) for mark in bundle(X, torch.ones(1, 3), "", 0)] == [Line]


def test_the_race_shows_both_sides_with_their_learning_rates():
    (figure,) = figures_of(verification(runs([3.0, 4.0]), runs([1.0, 2.0])))
    names = [mark.name for mark in figure.marks if isinstance(mark, Line)]
    assert names == ["as it is (rate 0.01)", "changed (rate 0.1)"]
    assert figures_of(verification(torch.zeros(0, 0), torch.zeros(0, 0))) == ()
