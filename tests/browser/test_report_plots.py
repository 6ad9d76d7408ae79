"""The plots of a report in a real browser: when they are drawn, their axes, tools and tooltips."""

from dataclasses import replace
from html import escape
from itertools import pairwise

import pytest
import torch

import skiplens as sl
from skiplens.plots.figure import Figure, Line, Points
from skiplens.plots.section import Section
from skiplens.plots.thumbnails import thumbnails
from skiplens.report.inspection import Report
from skiplens.report.page import Opening, page
from tests.browser.conftest import unfold
from tests.browser.report_page import HOSTILE, PHONE, made
from tests.report.networks import build, data
from tests.report.readings import signal, tangent
from tests.sample_readings import structure


def test_all_plots_are_drawn_without_a_word_on_the_console(whole_path, look):
    page = look(whole_path)
    assert page.locator(".more .js-plotly-plot").count() == 0  # drawn when they are wanted
    page = look(whole_path, unfolded=True)
    figures = [figure for section in made(whole=True).sections() for figure in section.figures]
    assert len(figures) > 10
    marks = ":is(.bars path, .lines path, .points path, .heatmaplayer image)"
    plots = ".plot[role=group]"
    assert page.locator(plots).count() == len(figures) == page.locator(f"{plots}:has({marks})").count()
    stops = page.locator(".plot *").evaluate_all("all => all.filter(e => e.tabIndex >= 0).length")
    assert stops == 0  # a picture is no place for the keyboard


def test_a_plot_is_drawn_when_one_comes_near(whole_path, visit):
    """Until then it costs nothing: the page answers while the library has not even been read."""
    page = visit(whole_path)
    page.wait_for_selector("html[data-plots=drawn]")
    plots = page.locator(".plot:visible")
    last, drawn = plots.last, page.locator(".plot.js-plotly-plot")
    assert drawn.count() < plots.count() and "js-plotly-plot" not in last.get_attribute("class")
    last.scroll_into_view_if_needed()
    last.locator(".main-svg").first.wait_for()
    before = drawn.count()
    assert before < plots.count()
    page.get_by_role("button", name="Dark look").click()
    assert drawn.count() == before, "a change of the look draws nothing that nobody has seen"


def test_the_tool_bar_of_a_plot_holds_what_we_chose_and_nothing_that_uploads(path, look):
    page = look(path, unfolded=True)  # the small picture of a card has none
    titles = page.locator(".modebar-btn").evaluate_all("all => [...new Set(all.map(e => e.dataset.title))]")
    assert set(titles) == {"Download plot as a PNG", "Zoom", "Pan", "Reset axes"}


def test_bars_of_one_height_are_folded_and_a_matrix_stands_beside_its_words(tmp_path, look):
    alike = structure(branch_parameters=torch.full((2,), 7), shortcut_parameters=torch.zeros(2, dtype=torch.int64))
    page = look(Report("even", (alike, tangent([1.0] * 4))).save(tmp_path / "even.html"))
    assert page.locator("#structure > figure").count() == 0 and page.locator("#structure .more figure").count() == 1
    matrix, words = (page.locator(f"#tangent > {part}").bounding_box() for part in ("figure", ".lead"))
    assert matrix["x"] >= words["x"] + words["width"], "side by side, so that nothing stands empty below the words"
    page.set_viewport_size({"width": 390, "height": 844})
    assert page.locator("#tangent > figure").bounding_box()["y"] > page.locator("#tangent > .lead").bounding_box()["y"]
    uneven = look(Report("uneven", (structure(),)).save(tmp_path / "uneven.html"))
    assert uneven.locator("#structure > figure").count() == 1


def test_blocks_along_an_axis_have_round_numbers_and_bars_no_line_at_zero(tmp_path, look):
    names = tuple(f"b{number}" for number in range(200))
    readings = structure(blocks=200, block_names=names), signal(blocks=200, block_names=names)
    page = look(Report("deep", readings).save(tmp_path / "deep.html"))
    for card in ("structure", "signal"):
        ticks = page.locator(f"#{card} > figure .xtick").all_text_contents()
        apart = int(ticks[0])
        assert apart in (20, 50) and ticks == [str(number) for number in range(apart, 201, apart)]
    assert page.locator("#structure > figure .xzl, #structure > figure .xgrid").count() == 0
    page = look(Report("deep", readings).save(tmp_path / "deep.html"), **PHONE)
    shown = page.locator("#hero .number:visible").all_text_contents()
    assert len(shown) > 2 and shown == [str(int(shown[0]) * (place + 1)) for place in range(len(shown))]
    ends = page.locator("#hero .number:visible").evaluate_all("all => all.map(e => e.getBoundingClientRect().right)")
    assert max(ends) <= page.locator("#hero").evaluate("e => e.getBoundingClientRect().right")


def test_numbers_have_a_minus_where_one_points(tmp_path, look):
    figure = Figure("f", "F", "", "x", "y", (Line((0.0, 1.0, 2.0), (-1.0, -2.5, -1.0), "x-3 of y"),))
    path = tmp_path / "negative.html"
    path.write_text(page("n", Opening("N.", "", ()), [Section("s", "S", "", figures=(figure,))], (), {}))
    drawn = look(path)
    box = drawn.locator(".plot .xy").first.bounding_box()
    drawn.mouse.move(box["x"] + box["width"] / 2, box["y"] + 0.9 * box["height"])
    told = drawn.locator(".hovertext")
    told.wait_for()
    wait = "() => document.querySelector('.hovertext').textContent.includes('y: −2.5')"
    drawn.wait_for_function(wait)
    assert "x-3 of y" in told.text_content(), "a name keeps its hyphen"


def test_what_became_of_runs_stands_beside_the_last_cross(tmp_path, look):
    crosses = Points((3.0, 9.0, 5.0), (10.0, 10.0, 10.0), "as it is: diverged on 3 of 7 seeds", crossed=True)
    figure = Figure("race", "Race", "", "step", "loss", (Line((0.0, 100.0), (1.0, 10.0), "changed"), crosses))
    path = tmp_path / "race.html"
    path.write_text(page("race", Opening("Race.", "", ()), [Section("race", "Race", "", figures=(figure,))], (), {}))
    drawn = look(path)
    (words,) = (e for e in drawn.locator(".textpoint text").all() if e.text_content().strip())
    marks = drawn.locator(".scatterlayer .points path").evaluate_all(
        "all => all.map(e => e.getBoundingClientRect().right)"
    )
    assert words.text_content().strip() == "diverged on 3 of 7 seeds"
    assert words.bounding_box()["x"] >= max(marks), "and not on the others"


def test_numbers_along_an_axis_are_written_out(tmp_path, look):
    large = structure(branch_parameters=torch.tensor([15000, 45000]))
    page = look(Report("large", (large,)).save(tmp_path / "large.html"))
    ticks = page.locator("#structure > figure .ytick").all_text_contents()
    assert "40,000" in ticks and not any("k" in tick for tick in ticks)


@pytest.mark.slow
def test_samples_are_seen_along_their_matrix_and_in_pairs_where_one_points(tmp_path, look):
    images = torch.arange(4.0).view(4, 1, 1, 1) * torch.eye(9)[None, None]
    pictures = thumbnails(images)
    shown = replace(
        tangent([1.0] * 4),
        kernel=torch.eye(4) + 1,
        targets=torch.tensor([1, 0, 1, 0]),
        classes=("cat", HOSTILE),
        pictures=(*pictures[:3], HOSTILE),
    )
    page = look(Report("seen", (shown,)).save(tmp_path / "seen.html"))
    plot = page.locator(".plot:has(.heatmaplayer image)")
    assert plot.evaluate("plot => plot.layout.images.length") == 6  # what is no picture is left out
    named = [text.replace("<br>", " ") for text in plot.evaluate("plot => plot.layout.xaxis.ticktext")]  # on two lines
    assert named == ["cat", escape(HOSTILE, quote=False)]
    page.locator(".pointed").get_by_text("Point at a cell").wait_for()
    plot.scroll_into_view_if_needed()
    place = plot.evaluate(
        """plot => { const {xaxis, yaxis} = plot._fullLayout, box = plot.getBoundingClientRect();
        return [box.x + xaxis._offset + xaxis.d2p(2), box.y + yaxis._offset + yaxis.d2p(0)]; }"""
    )
    page.mouse.move(*place)
    page.locator(".pointed img").first.wait_for()
    sources = page.locator(".pointed img").evaluate_all("all => all.map(image => image.src)")
    assert sources == [pictures[1], pictures[0]], "row 0 is the first cat, column 2 the first of the other class"
    assert page.locator(".pointed").inner_text() == "correlation 0.5"


def test_a_browser_that_cannot_unpack_says_so(path, visit):
    page = visit(path, script="delete window.DecompressionStream")
    page.locator(".plot").first.scroll_into_view_if_needed()
    page.locator(".plot .note").first.wait_for()
    assert "too old to draw the plot" in page.locator(".plot").first.inner_text()
    unfold(page)
    page.locator(".numbers summary").first.click()
    page.locator(".numbers tbody tr").first.wait_for()


@pytest.mark.slow
def test_words_along_the_axes_are_not_cut_on_a_phone(tmp_path, look):
    models = {f"a network of the {size} size": build(scale) for size, scale in (("small", 0.1), ("large", 1.0))}
    comparison = sl.compare(models, data(), lenses=["curvature"], draws=2)
    page = look(comparison.save(tmp_path / "comparison.html"), **PHONE)
    plot = page.locator(".plot", has=page.locator(".ytick")).first
    boxes = """(plot, words) => [...plot.querySelectorAll(words)].map(part => part.getBoundingClientRect())
        .map(box => [box.top, box.bottom, box.left, box.right])"""
    (frame,) = page.evaluate(
        "plot => [plot.getBoundingClientRect()].map(box => [box.left, box.right])", plot.element_handle()
    )
    found = plot.evaluate(boxes, ".xtitle, .ytitle, .ytick text")
    assert len(found) > 5 and all(frame[0] - 1 <= left and right <= frame[1] + 1 for _, _, left, right in found)
    assert plot.locator(".ytick text tspan").count() > 2  # long names stand on two lines
    names = sorted(plot.evaluate(boxes, ".ytick text"))
    assert all(above[1] <= below[0] + 1 for above, below in pairwise(names))  # and never meet
