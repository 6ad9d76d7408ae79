import json
import re

import numpy as np
import pytest
import torch
from matplotlib.layout_engine import ConstrainedLayoutEngine

from skiplens.plots.figure import Band, Bars, Figure, Heat, Line, Points, Reference, numbers
from skiplens.plots.matplotlib_file import DOTS_PER_INCH, SIZE_IN_INCHES, _drawn, save_figure
from skiplens.plots.plotly_json import plotly_json
from skiplens.readings.reading import Reading
from skiplens.report.lenses import figures_of
from tests.sample_readings import structure

HOSTILE = "<img src=x onerror=alert(1)> $x_1$ & </script>"

EVERY_MARK = Figure(
    name="all",
    title=HOSTILE,
    caption="everything",
    x_label="x",
    y_label="y",
    marks=(
        Line((1.0, 2.0), (3.0, 4.0), "theory"),
        Points((1.0, 2.0), (3.0, 5.0), "measured", error=(0.1, 0.2), labels=("a", HOSTILE)),
        Band((1.0, 2.0), (2.0, 3.0), (4.0, 5.0), "spread"),
        Reference(3.5, HOSTILE),
        Reference(1.5, "here", axis="x"),
    ),
    y_log=True,
)
BARS = Figure("bars", "t", "c", "x", "y", (Bars(("1", "2"), (3.0, 4.0), "a"), Bars(("1", "2"), (1.0, 2.0), "b")))
HEAT = Figure("heat", "t", "c", "x", "y", (Heat(((1.0, 2.0), (3.0, 4.0)), "kernel"),))


@pytest.mark.parametrize("figure", [EVERY_MARK, BARS, HEAT], ids=lambda figure: figure.name)
@pytest.mark.parametrize("ending", ["png", "svg"])
def test_every_mark_is_drawn_to_a_file(figure, ending, tmp_path):
    path = tmp_path / f"figure.{ending}"
    save_figure(figure, path)
    start = path.read_bytes()[:200]
    assert start.startswith(b"\x89PNG") if ending == "png" else b"<?xml" in start


def test_an_svg_has_one_bar_a_number(tmp_path):
    """The oracle is the file itself: Matplotlib writes one filled path a bar."""
    save_figure(BARS, tmp_path / "bars.svg")
    picture = (tmp_path / "bars.svg").read_text()
    for shade in ("#0072b2", "#cc79a7"):
        assert len(re.findall(f"fill: {shade}", picture)) == 3  # two bars and the legend's sample


def test_plotly_json_holds_the_numbers_and_survives_json():
    drawn = json.loads(json.dumps(plotly_json(EVERY_MARK), allow_nan=False))
    line, points, low, high = drawn["data"]
    assert line["y"] == [3.0, 4.0] and points["error_y"]["array"] == [0.1, 0.2]
    assert low["y"] == [2.0, 3.0] and high["y"] == [4.0, 5.0] and high["fill"] == "tonexty"
    assert drawn["layout"]["yaxis"]["type"] == "log" and "type" not in drawn["layout"]["xaxis"]
    assert [shape.get("y0") for shape in drawn["layout"]["shapes"]] == [3.5, 0]


@pytest.mark.parametrize(("log", "place"), [(True, 2.0), (False, 100.0)])
@pytest.mark.parametrize("axis", ["x", "y"])
def test_the_name_of_a_level_stands_at_its_line(log, place, axis):
    """plotly.js places annotations of a logarithmic axis by their exponent, and shapes by their value."""
    level = Reference(100.0, "here", axis=axis)
    drawn = plotly_json(Figure("f", "t", "c", "x", "y", (level,), x_log=log, y_log=log))["layout"]
    assert drawn["annotations"][0][axis] == pytest.approx(place) and drawn["shapes"][0][f"{axis}0"] == 100.0


def test_a_tooltip_names_series_and_units_and_rounds():
    line, *_ = plotly_json(Figure("f", "t", "c", "step", "loss in nats", (Line((1.0,), (2.0,), "tried"),)))["data"]
    assert line["hovertemplate"] == "<b>tried</b><br>step: %{x:,.4~r}<br>loss in nats: %{y:,.3~r}<extra></extra>"
    (bars,) = plotly_json(Figure("f", "t", "c", "block", "share", (Bars(("b<0>",), (1.0,)),)))["data"]
    assert bars["hovertemplate"].startswith("%{hovertext}<br>share: ") and bars["hovertext"] == ["b&lt;0&gt;"]


def test_a_matrix_names_each_class_once_in_the_middle_of_its_samples():
    heat = Heat(((0.0,) * 3,) * 3, "correlation", ("class 1", "class 1", "class 7"))
    drawn = plotly_json(Figure("f", "t", "c", "sample", "sample", (heat,)))
    for axis in ("xaxis", "yaxis"):
        assert drawn["layout"][axis]["tickvals"] == [0.5, 2.0]
        assert drawn["layout"][axis]["ticktext"] == ["class 1", "class 7"]
    assert drawn["data"][0]["hovertext"][0] == ["class 1, class 1", "class 1, class 1", "class 1, class 7"]


def test_one_line_of_many_is_in_no_legend():
    faint, own = (Line((1.0,), (2.0,), name, faint=name == "tried") for name in ("tried", "best"))
    shown = [
        trace.get("showlegend", True) for trace in plotly_json(Figure("f", "t", "c", "x", "y", (faint, own)))["data"]
    ]
    assert shown == [False, True]


def test_names_are_words_never_markup():
    assert "<img" not in json.dumps(plotly_json(EVERY_MARK)["data"]) + json.dumps(plotly_json(EVERY_MARK)["layout"])


@pytest.mark.parametrize("mark", [Line, Points])
def test_the_name_of_a_series_and_of_an_axis_is_shown_as_it_is(mark):
    drawn = plotly_json(Figure("f", "t", "c", "a < b", "<b>", (mark((0.0,), (1.0,), "<i>R&D</i>"),)))
    assert drawn["data"][0]["name"] == "&lt;i&gt;R&amp;D&lt;/i&gt;"
    assert [drawn["layout"][axis]["title"]["text"] for axis in ("xaxis", "yaxis")] == ["a &lt; b", "&lt;b&gt;"]


def test_bars_keep_their_categories_as_words():
    axis = plotly_json(BARS)["layout"]["xaxis"]
    assert axis["ticktext"] == ["1", "2"] and axis["tickvals"] == [0, 1]


def test_a_matrix_is_read_from_the_top():
    assert plotly_json(HEAT)["layout"]["yaxis"]["autorange"] == "reversed"


@pytest.mark.parametrize("values", [torch.tensor([1, 2]), np.array([[1.0, 2.0]]), [1, 2.0]])
def test_numbers_are_plain_floats(values):
    assert numbers(values) == (1.0, 2.0)


def test_the_structure_shows_branch_and_shortcut_parameters():
    (figure,) = figures_of(structure())
    branch, shortcut = figure.marks
    assert branch.y == (3.0, 4.0) and shortcut.y == (0.0, 3.0) and branch.labels == ("a", "b")


def test_no_blocks_no_figure():
    assert figures_of(structure(blocks=0)) == ()
    assert figures_of(Reading()) == ()


def test_what_no_axis_has_is_a_gap(tmp_path):
    figure = Figure("gap", "t", "c", "x", "y", (Line((1.0, 2.0, 3.0), numbers([1.0, float("inf"), 3.0])),))
    assert plotly_json(figure)["data"][0]["y"] == [1.0, None, 3.0]
    save_figure(figure, tmp_path / "gap.png")


def test_a_figure_in_two_files_is_the_one_in_each(tmp_path):
    """The first file bit for bit; in the second all words are there, within a hundredth of the picture's width."""
    for name in ("png", "svg"):
        save_figure(BARS, tmp_path / f"alone.{name}")
    save_figure(BARS, tmp_path / "both.png", tmp_path / "both.svg")
    assert (tmp_path / "both.png").read_bytes() == (tmp_path / "alone.png").read_bytes()
    places = [_places(tmp_path / f"{name}.svg") for name in ("alone", "both")]
    assert len(places[0]) == len(places[1]) > 3
    width = 72 * SIZE_IN_INCHES[0]
    assert all(abs(a - b) < 0.01 * width for pair in zip(*places, strict=True) for a, b in zip(*pair, strict=True))


def _places(path):
    """Where each group of an SVG file is moved to."""
    found = re.findall(r"translate\(([-0-9.e]+) ([-0-9.e]+)\)", path.read_text("utf-8"))
    return [(float(x), float(y)) for x, y in found]


@pytest.mark.parametrize("figure", [EVERY_MARK, BARS, HEAT], ids=lambda figure: figure.name)
def test_a_figure_is_laid_out_as_matplotlib_does_it_when_it_saves(figure, tmp_path, monkeypatch):
    save_figure(figure, tmp_path / "ours.png")
    with monkeypatch.context() as patch:
        patch.setattr(ConstrainedLayoutEngine, "execute", lambda engine, canvas: None)
        canvas = _drawn(figure)
    canvas.set_layout_engine("constrained")
    canvas.savefig(tmp_path / "theirs.png", dpi=DOTS_PER_INCH)
    assert (tmp_path / "ours.png").read_bytes() == (tmp_path / "theirs.png").read_bytes()
