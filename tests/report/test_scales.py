"""The one number of each card: it is beyond its threshold where, and only where, the rule beside it speaks."""

import math
import re

import pytest

from skiplens.base.words import percent
from skiplens.plots.section import LIMIT, Scale
from skiplens.report import Report
from skiplens.report.lenses import find, section_of
from tests.report.readings import paths, signal, tangent
from tests.sample_readings import curvature, jacobians

SPECTRA = {shallow: [1.0, shallow, 0.0, 0.0, 0.0] for shallow in (0.05, 0.5, 0.6, 0.9, 5.0)}


@pytest.mark.parametrize(
    ("value", "best", "threshold", "place"),
    [
        (1.0, 1.0, 100.0, 0.0),
        (10.0, 1.0, 100.0, LIMIT / 2),
        (100.0, 1.0, 100.0, LIMIT),
        (1000.0, 1.0, 100.0, 1.0),
        (math.inf, 1.0, 100.0, 1.0),
        (0.5, 1.0, 100.0, 0.0),
        (0.1, 1.0, 0.01, LIMIT / 2),
        (0.0, 1.0, 0.01, 1.0),
    ],
)
def test_a_number_stands_between_the_best_and_the_threshold(value, best, threshold, place):
    assert Scale("n", value, best, threshold, "why").place == pytest.approx(place)


def test_a_share_stands_on_a_straight_scale_and_one_without_threshold_ends_at_zero():
    assert Scale("n", 0.05, 0.0, 0.1, "why", percent, logarithmic=False).place == pytest.approx(LIMIT / 2)
    open_ended = Scale("n", 4.0, 16.0, None, "why", logarithmic=False)
    assert open_ended.place == pytest.approx(0.75) and not open_ended.is_beyond
    assert Scale("n", 0.05, 0.0, 0.1, "why", shown="a number").shown == "a number"


@pytest.mark.parametrize("rate", [-0.5, -0.2, 0.0, 0.1, 0.19, 0.21, 1.0, 200.0])
@pytest.mark.parametrize("way", ["rate", "back"])
def test_the_signal_is_beyond_its_threshold_where_a_rule_speaks(rate, way):
    reading = signal(**{way: rate})
    speaks = {"signal_growth", "gradient_growth"} & {found.rule for found in find([reading])}
    if math.isfinite(float(reading.signal.sum() + reading.gradient.sum())):
        assert section_of(reading).scale.is_beyond == bool(speaks)


def test_two_blocks_are_not_judged():
    assert section_of(signal(blocks=2, rate=2.0)).scale is None


@pytest.mark.parametrize("energy", SPECTRA.values(), ids=map(str, SPECTRA))
def test_the_depth_is_beyond_its_threshold_where_the_rule_speaks(energy):
    reading = paths(energy)
    speaks = any(found.rule == "effective_depth" for found in find([reading, signal(blocks=4)]))
    assert section_of(reading).scale.is_beyond == speaks


@pytest.mark.parametrize("smallest", [1.0, 1e-3, 0.99e-4, 1.01e-4, 1e-9])
def test_the_kernel_is_beyond_its_threshold_where_the_rule_speaks(smallest):
    reading = tangent([1.0, 0.5, smallest])
    speaks = any(found.rule == "kernel_condition" for found in find([reading]))
    assert section_of(reading).scale.is_beyond == speaks


def test_cards_have_a_question_and_what_the_number_means():
    for reading in (signal(), paths([1.0, 4.0, 6.0, 4.0, 1.0]), curvature(), jacobians(), tangent([2.0, 1.0])):
        section = section_of(reading)
        assert section.question.endswith("?") and section.scale.why.endswith(".")


@pytest.mark.parametrize(
    ("made", "anchor", "severity", "end"),
    [
        (lambda: [paths(SPECTRA[0.05]), signal(blocks=4)], "paths", "note", "unusual"),
        (lambda: [signal(rate=1.0)], "signal", "critical", "unhealthy"),
        (lambda: [signal()], "signal", "", "unhealthy"),
    ],
)
def test_a_card_is_as_bad_as_the_findings_of_its_lens(made, anchor, severity, end):
    readings = made()  # when the test has its precision
    report = Report("a network", tuple(readings), findings=find(readings))
    section = next(section for section in report.sections() if section.anchor == anchor)
    assert section.severity == severity and section.scale.is_beyond == bool(severity)
    card = re.search(rf'<section id="{anchor}".*?</section>', report.to_html(), re.DOTALL).group()
    assert f'class="reading severity-{severity or "none"}"' in card and f"<span>{end}</span>" in card
    assert ('<span class="badge severity-' in card) == bool(severity)
