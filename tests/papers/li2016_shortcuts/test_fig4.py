"""Figure 4: the measure against closed forms, and judges that can say no."""

import pytest
import torch

from skiplens.papers.li2016_shortcuts import fig3_fig4
from skiplens.papers.li2016_shortcuts.common import FAMILIES, digit_moments, whitened_digits
from skiplens.papers.li2016_shortcuts.fig3_fig4 import InitialSpectrum
from skiplens.papers.li2016_shortcuts.hessian.at_zero import orthogonal_spectrum
from tests.papers.li2016_shortcuts.fake_readings import fake, judged


def test_two_shortcut_networks_start_beside_equation_9(seed):
    found = fig3_fig4.initial_spectrum(InitialSpectrum(depth=8, source="sample", seed=seed))
    moments = digit_moments("sample")
    expected = float(torch.linalg.cond(moments.inputs - moments.cross))
    assert float(found["zero_condition_number"]) == pytest.approx(expected, rel=1e-12)
    assert float(found["condition_number"]) == pytest.approx(expected, rel=0.01)  # weights are 0.01 times Xavier's


def test_orthogonal_networks_are_one_shortcut_networks_at_zero(seed):
    settings = InitialSpectrum(family="orthogonal", depth=3, source="sample", seed=seed)
    Q = FAMILIES["orthogonal"].start(3, settings.stream())
    expected = orthogonal_spectrum(Q, *whitened_digits("sample"))
    found = fig3_fig4.initial_spectrum(settings)
    assert float(found["condition_number"]) == pytest.approx(expected.condition_number, rel=1e-9)
    assert float(found["index"]) == expected.index


def networks(family: str, numbers: dict[int, float]) -> list:
    return [
        fake(
            "initial_spectrum",
            {"family": family, "depth": depth, "replicate": replicate},
            condition_number=number,
            zero_condition_number=1.5,
        )
        for depth, number in numbers.items()
        for replicate in range(3)
    ]


def test_the_judge_of_constancy():
    assert judged(fig3_fig4.FIG4, "two_shortcut", networks("2-shortcut", {2: 1.5, 8: 1.505})).verdict == "reproduced"
    assert judged(fig3_fig4.FIG4, "two_shortcut", networks("2-shortcut", {2: 1.5, 8: 1.6})).verdict == "differs"


def test_the_judge_of_linear_growth():
    linear = {depth: 2.7 * depth for depth in (4, 8, 16, 32)}
    assert fig3_fig4.linear_growth(networks("orthogonal", linear), "orthogonal").verdict == "reproduced"
    square = {depth: float(depth) ** 2 for depth in linear}
    assert fig3_fig4.linear_growth(networks("orthogonal", square), "orthogonal").verdict == "differs"
    shallow = fig3_fig4.linear_growth(networks("orthogonal", {4: 1.0, 8: 2.0}), "orthogonal")
    assert shallow.verdict == "not attempted"
    assert "deeper than 8" in shallow.explanation


def test_the_judges_of_xavier():
    readings = networks("xavier", {4: 1e3, 8: 1e5}) + networks("orthogonal", {4: 10.0, 8: 20.0})
    assert judged(fig3_fig4.FIG4, "xavier", readings).verdict == "reproduced"
    assert judged(fig3_fig4.FIG4, "orthogonal_slower", readings).verdict == "reproduced"
    tame = networks("xavier", {4: 5.0, 8: 9.0}) + networks("orthogonal", {4: 10.0, 8: 20.0})
    assert judged(fig3_fig4.FIG4, "xavier", tame).verdict == "differs"
    assert judged(fig3_fig4.FIG4, "orthogonal_slower", tame).verdict == "opposite"


def test_the_judge_of_likeness():
    orthogonal = networks("orthogonal", {4: 10.0, 8: 20.0})
    for last, word in ((21.0, "reproduced"), (40.0, "differs")):
        readings = orthogonal + networks("1-shortcut", {4: 10.5, 8: last})
        assert judged(fig3_fig4.FIG4, "one_shortcut_like_orthogonal", readings).verdict == word
