"""One table of colours by what they mean, for every figure and in both looks."""

import json
import re
from importlib import resources

import pytest
from tools.gallery import LIVE, kept

from skiplens.plots.figure import COLOURS, DARK, PALETTE, Figure, Line
from skiplens.plots.plotly_json import plotly_json
from tests.browser.contrast import contrast

PAPERS = {"light": "#ffffff", "dark": "#0d1117"}


def colours_of(figure: Figure) -> list[tuple[str, str]]:
    """The name of each series with its colour, as the page draws it."""
    traces = plotly_json(figure)["data"]
    marked = [(trace.get("name", ""), trace.get("line") or trace.get("marker") or {}) for trace in traces]
    return [(name, style["color"]) for name, style in marked if "color" in style]


def test_orange_is_the_gradient_and_green_the_signal_wherever_they_are_in_a_report():
    figures = [figure for section in kept(LIVE).sections() for figure in section.figures]
    drawn = [pair for figure in figures for pair in colours_of(figure)]
    for name in ("signal", "gradient"):
        assert {series for series, shade in drawn if shade == COLOURS[name]} == {name}
    shades = {}
    for name, shade in drawn:
        shades.setdefault(name, set()).add(shade)
    assert len(shades) > 15 and not {name: found for name, found in shades.items() if name and len(found) > 1}


def test_a_series_without_a_meaning_gets_none():
    assert not {COLOURS["signal"], COLOURS["gradient"], COLOURS["fails"]} & set(PALETTE)
    other = Figure("f", "", "", "", "", tuple(Line((0.0, 1.0), (0.0, 1.0), name) for name in ("a", "gradient", "b")))
    assert [shade for _, shade in colours_of(other)] == [PALETTE[0], COLOURS["gradient"], PALETTE[2]]


def test_the_page_has_the_same_dark_look():
    script = resources.files("skiplens.report").joinpath("templates/plots.js").read_text("utf-8")
    (table,) = re.findall(r"const DARK = (\{.*?\});", script, re.DOTALL)
    assert json.loads(table.replace(",\n}", "}")) == DARK


@pytest.mark.parametrize("look", PAPERS)
def test_colours_are_seen_and_told_apart(look):
    shades = sorted({*PALETTE, *COLOURS.values()})
    shown = [DARK.get(shade, shade) if look == "dark" else shade for shade in shades]
    assert len(set(shown)) == len(shades)
    assert min(contrast(shade, PAPERS[look]) for shade in shown) > {"light": 2.2, "dark": 3.6}[look]
