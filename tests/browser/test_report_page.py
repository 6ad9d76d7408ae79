import json
import re
from dataclasses import replace
from html import escape
from itertools import pairwise
from pathlib import Path
from xml.etree import ElementTree

import pytest
import torch
from torch import nn

import skiplens as sl
from skiplens.plots.figure import Figure, Line, Points
from skiplens.plots.section import Section
from skiplens.plots.thumbnails import thumbnails
from skiplens.report.inspection import Problem, Report
from skiplens.report.page import Opening, page
from tests.browser.conftest import read_on, unfold
from tests.browser.contrast import contrast
from tests.report.networks import build, data
from tests.report.readings import paths, signal, tangent
from tests.report.test_findings_section import finding
from tests.report.test_verification_section import raced
from tests.sample_readings import curvature, jacobians, structure

HOSTILE = "</script><img src=x onerror=alert(1)><b>'\"&amp;"
NAMES = ("b0", "b1", HOSTILE, "b3")
CODE = "for name in ('a', \"b\"):\n    print(name < 'c' & 1)  # <b>"
PHONE = {"viewport": {"width": 360, "height": 740}}


def made(whole: bool = False) -> Report:
    """A page with a bad name wherever one can be; the readings of all lenses on it only if it is the whole one."""
    readings = [
        structure(blocks=4, block_names=NAMES, model=HOSTILE, notes=(HOSTILE,)),
        signal(blocks=4, block_names=NAMES, norm_scales=torch.tensor([1.0, 2.0, 3.0, float("nan")])),
    ]
    if whole:
        pairs = torch.eye(4)
        by_block = {"block_energy": torch.ones(4), "block_shares": torch.ones(4), "pair_energy": pairs}
        readings.append(paths([1.0, 4.0, 6.0, 4.0, 1.0], block_names=NAMES, **by_block))
        readings.append(curvature(block_values={name: curvature().values() for name in NAMES}))
        readings.append(jacobians())
    findings = (finding("critical", where=("b1",), code=CODE, sentence=HOSTILE), finding("note", where=("b3",)))
    return Report(HOSTILE, tuple(readings), (Problem(HOSTILE, HOSTILE),), findings)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return made().save(tmp_path / "a report #1.html")


@pytest.fixture
def whole_path(tmp_path: Path) -> Path:
    return made(whole=True).save(tmp_path / "whole.html")


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


@pytest.mark.slow
def test_a_click_on_a_block_picks_it_out_and_show_all_brings_the_others_back(path, look):
    page = look(path, unfolded=True)
    bars = page.locator("#structure .plot").first
    opacities = (
        "plot => [...plot.querySelectorAll('.barlayer .trace:first-child .point path')].map(p => p.style.opacity)"
    )
    assert bars.evaluate(opacities) == ["1"] * 4
    assert not page.locator("#drawer").is_visible()
    page.locator(".block").nth(1).click()
    assert bars.evaluate(opacities) == ["0.2", "1", "0.2", "0.2"]
    assert page.locator("#signal tbody tr:visible td:first-child").all_inner_texts() == ["b1"]
    assert page.locator(".block[aria-pressed=true]").get_attribute("data-name") == "b1"
    assert page.locator("#filter").inner_text().startswith("Only block 2 (b1)")
    assert page.locator(".finding.concerned .badge").inner_text() == "CRITICAL"
    page.get_by_role("button", name="Show all blocks").click()
    assert bars.evaluate(opacities) == ["1"] * 4
    assert page.locator("#signal tbody tr:visible").count() == 4
    assert not page.locator("#drawer").is_visible() and page.locator(".block[aria-pressed=true]").count() == 0


def test_the_tool_bar_of_a_plot_holds_what_we_chose_and_nothing_that_uploads(path, look):
    page = look(path, unfolded=True)  # the small picture of a card has none
    titles = page.locator(".modebar-btn").evaluate_all("all => [...new Set(all.map(e => e.dataset.title))]")
    assert set(titles) == {"Download plot as a PNG", "Zoom", "Pan", "Reset axes"}


def test_a_card_answers_a_question_and_unfolds(whole_path, look):
    page = look(whole_path)
    card = page.locator("#signal")
    assert card.locator(".question").inner_text().endswith("?")
    marker, bar = card.locator(".scale i").bounding_box(), card.locator(".scale .bar").bounding_box()
    assert bar["x"] - marker["width"] <= marker["x"] <= bar["x"] + bar["width"]
    assert card.locator(".plot").count() > 1 and card.locator(".plot:visible").count() == 1
    assert not card.locator("table").first.is_visible()
    narrow = card.locator(".main-svg:visible").first.bounding_box()["width"]
    card.locator(".more > summary").click()
    read_on(page)
    assert card.locator("table").first.is_visible()
    wide = card.locator(".main-svg:visible").first.bounding_box()["width"]
    assert wide > 1.5 * narrow, "the card takes the whole width then, and so does its picture"


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


def saved_card(page, kind: str) -> bytes:
    with page.expect_download() as waiting:
        page.get_by_role("button", name=kind.upper(), exact=True).click()
    assert waiting.value.suggested_filename == f"skiplens-card.{kind}"
    return Path(waiting.value.path()).read_bytes()


def test_the_drawing_is_saved_as_a_card(path, look):
    page = look(path)
    content = saved_card(page, "png")
    assert [int.from_bytes(content[start : start + 4], "big") for start in (16, 20)] == [1200, 630]
    card = ElementTree.fromstring(saved_card(page, "svg"))
    assert (card.get("width"), card.get("height")) == ("1200", "630")
    words = [text.text for text in card.iter("{http://www.w3.org/2000/svg}text")]
    assert words[0] == HOSTILE and words[1] == page.locator(".verdict .headline").inner_text()
    assert len(page.locator("#hero .ribbon").all()) == sum(
        "ribbon" in part.get("class", "") for part in card.iter("{http://www.w3.org/2000/svg}path")
    )


def test_the_drawer_stays_beside_the_page_and_covers_nothing(path, look):
    page = look(path, viewport={"width": 1400, "height": 900})
    page.locator(".block").nth(1).click()
    page.mouse.wheel(0, 2000)
    drawer = page.locator("#drawer")
    assert drawer.is_visible() and drawer.bounding_box()["y"] == 0
    assert page.locator("main").evaluate("e => e.getBoundingClientRect().right") <= drawer.bounding_box()["x"]
    page.set_viewport_size({"width": 390, "height": 844})
    box = drawer.bounding_box()
    assert box["y"] + box["height"] == pytest.approx(844) and box["height"] < 844 / 2
    page.evaluate("scrollTo(0, document.body.scrollHeight)")
    assert page.locator("footer").evaluate("e => e.getBoundingClientRect().bottom") <= box["y"] + 1


def test_a_block_tells_its_numbers_where_one_points_or_the_keyboard_is(path, visit):
    page = visit(path)
    page.locator(".block").nth(1).hover()
    lines = page.locator("#tip").locator("b, span").all_inner_texts()
    assert lines[0] == "Block 2, b1" and any(line.startswith("parameters: ") for line in lines)
    assert any(line.startswith("signal ") for line in lines) and any(line.startswith("gradient ") for line in lines)
    page.locator(".verdict").hover()
    assert not page.locator("#tip").is_visible()
    page.locator(".block").first.focus()
    page.keyboard.press("ArrowRight")
    assert page.locator("#tip b").inner_text() == "Block 2, b1"
    colours = page.locator("#tip").evaluate("e => [getComputedStyle(e).color, getComputedStyle(e).backgroundColor]")
    assert contrast(*map(hexadecimal, colours)) >= 4.5


def hexadecimal(colour: str) -> str:
    return "#" + "".join(f"{int(part):02x}" for part in re.findall(r"\d+", colour)[:3])


def test_two_hundred_blocks_are_seen_whole_and_zoomed(tmp_path, visit):
    names = tuple(f"b{number}" for number in range(200))
    readings = structure(blocks=200, block_names=names), signal(blocks=200, block_names=names)
    page = visit(Report("deep", readings).save(tmp_path / "deep.html"))
    frame, last = page.locator(".pan"), page.locator(".block .hit").nth(199)
    assert frame.evaluate("e => e.scrollWidth") <= frame.evaluate("e => e.clientWidth") + 1
    inside = "e => e.getBoundingClientRect().right <= document.querySelector('.pan').getBoundingClientRect().right"
    assert last.evaluate(inside)
    narrow = last.bounding_box()["width"]
    for _ in range(3):
        page.get_by_role("button", name="Show fewer blocks, larger").click()
    assert last.bounding_box()["width"] == pytest.approx(8 * narrow, rel=0.1)
    frame.evaluate("e => { e.scrollLeft = 0; }")
    box = frame.bounding_box()
    page.mouse.move(box["x"] + 600, box["y"] + 20)
    page.mouse.down()
    page.mouse.move(box["x"] + 200, box["y"] + 20)
    page.mouse.up()
    assert frame.evaluate("e => e.scrollLeft") == pytest.approx(400, abs=2), "pulled by the mouse"
    assert page.locator(".block[aria-pressed=true]").count() == 0, "and not chosen, though a block was under the mouse"
    page.get_by_role("button", name="whole").click()
    assert last.bounding_box()["width"] == pytest.approx(narrow, rel=0.01)
    shown = page.locator("#hero .number:visible").evaluate_all("all => all.map(e => e.getBoundingClientRect().x)")
    assert min(after - before for before, after in pairwise(shown)) > 20


def test_more_blocks_are_folded_into_stages_and_unfold_where_one_presses(tmp_path, visit):
    names = tuple(f"s{number // 60}.{number % 60}" for number in range(240))
    kinds = {"block_names": names, "shortcuts": ("identity",) * 240}
    readings = structure(blocks=240, **kinds), signal(blocks=240, block_names=names)
    findings = (finding("warning", where=("s1.2",)),)
    page = visit(Report("deep", readings, (), findings).save(tmp_path / "deep.html"))
    stages, blocks = page.locator("#hero .stage"), page.locator("#hero .block")
    assert stages.count() == 8 and stages.first.is_visible() and page.locator("#hero .block:visible").count() == 0
    card = ElementTree.fromstring(saved_card(page, "svg"))
    ribbons = [part for part in card.iter("{http://www.w3.org/2000/svg}path") if part.get("class") == "ribbon"]
    assert len(ribbons) == 8, "the card shows what the page shows"
    stages.nth(2).hover()
    said = page.locator("#tip").locator("b, span").all_inner_texts()
    assert said[:2] == ["30 blocks, 61 to 90, s1.0 to s1.29", "30 with identity shortcut"]
    assert said[2].endswith("of the sum on average") and said[3:] == ["findings name 1 of them", "press to unfold"]
    stages.nth(2).click()
    assert page.locator("#hero .stage:visible").count() == 0
    frame = page.locator(".pan").bounding_box()
    for block in (blocks.nth(60), blocks.nth(89)):
        box = block.locator(".hit").bounding_box()
        assert frame["x"] <= box["x"] and box["x"] + box["width"] <= frame["x"] + frame["width"] and box["width"] > 6
    assert blocks.nth(60).evaluate("e => e === document.activeElement")
    page.keyboard.press("Enter")
    assert page.locator("#filter b").inner_text() == "Only block 61 (s1.0)"
    page.get_by_role("button", name="whole").click()
    stages.first.focus()
    page.keyboard.press("ArrowRight")
    page.keyboard.press("Enter")
    assert blocks.nth(30).evaluate("e => e === document.activeElement")


@pytest.mark.slow
def test_lines_and_matrices_get_a_column_at_the_chosen_block(whole_path, look):
    page = look(whole_path, unfolded=True)
    page.locator(".block").nth(2).click()
    spans = "plot => plot.layout.shapes.filter(s => s.type === 'rect').map(s => [s.x0, s.x1])"
    depth = page.locator("figure", has_text="Signal and gradient by depth").locator(".plot")
    assert depth.evaluate(spans) == [[2, 3]], "the third block acts between what is behind the second and behind it"
    pair = page.locator("figure", has_text="Contribution of each pair").locator(".plot")
    assert pair.evaluate(spans) == [[1.5, 2.5]]
    density = page.locator("figure", has_text="Eigenvalues of the Hessian").locator(".plot").first
    assert density.evaluate(spans) == []


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


def test_chosen_blocks_are_compared_in_numbers(path, look):
    page = look(path)
    for number in (0, 2):
        page.locator(".block").nth(number).click()
    assert page.locator("#chosen thead th").all_inner_texts() == ["number", "block 1 (b0)", f"block 3 ({HOSTILE})"]
    row = page.locator("#chosen tr", has_text="batch-norm scale")
    assert row.locator("td").all_inner_texts() == ["batch-norm scale", "1", "3"]
    titles = page.locator("#chosen tbody th[colspan='3']").all_inner_texts()
    assert titles == ["Signal and gradient", "Structure"], "what the numbers are of stands once, above them"


@pytest.mark.slow
def test_blocks_are_chosen_from_the_keyboard(path, look):
    page = look(path)
    blocks = page.locator(".block")
    blocks.first.focus()
    page.keyboard.press("ArrowRight")
    page.keyboard.press("Enter")
    page.keyboard.press("End")
    page.keyboard.press("Space")
    pressed = [blocks.nth(number).get_attribute("aria-pressed") for number in range(4)]
    assert pressed == ["false", "true", "false", "true"]
    assert [blocks.nth(number).get_attribute("tabindex") for number in range(4)] == ["-1", "-1", "-1", "0"]
    assert page.locator("[role=status]").inner_text() == "Only block 2 (b1), 4 (b3)"
    page.keyboard.press("Escape")
    assert page.locator(".block[aria-pressed=true]").count() == 0


@pytest.mark.parametrize("script", ["", "Object.defineProperty(navigator, 'clipboard', {value: undefined})"])
@pytest.mark.slow
def test_the_copy_button_copies_the_code(path, visit, script):
    """With the clipboard of today's browsers, and by selection where there is none."""
    page = visit(path, script=script, permissions=["clipboard-read", "clipboard-write"])
    page.locator(".finding .copy-code").first.click()
    page.locator(".finding .copy-code", has_text="Copied").wait_for()
    page.evaluate("document.body.append(Object.assign(document.createElement('textarea'), {id: 'paste'}))")
    page.locator("#paste").focus()
    page.keyboard.press("Control+v")
    assert page.locator("#paste").input_value() == CODE


@pytest.mark.slow
def test_a_table_is_copied_as_rows_and_tabs(path, visit):
    page = visit(path, permissions=["clipboard-read", "clipboard-write"])
    unfold(page)
    page.locator("#structure .copy").click()
    page.locator("#structure .copy", has_text="Copied").wait_for()
    lines = page.evaluate("navigator.clipboard.readText()").split("\n")
    assert lines[0].split("\t")[:3] == ["block", "join", "shortcut"]
    assert [line.split("\t")[0] for line in lines[1:]] == list(NAMES)


def test_numbers_are_written_as_people_do_and_copied_as_a_spreadsheet_reads_them(tmp_path, visit):
    values = torch.tensor([-1.0, -2.5e-9, 0.5, 1234.5, 4.0e12], dtype=torch.float64)
    report = Report("numbers", (structure(), curvature(grid=values, density=torch.arange(1.0, 6.0))))
    page = visit(report.save(tmp_path / "numbers.html"), permissions=["clipboard-read", "clipboard-write"])
    unfold(page)
    card = page.locator("#curvature")
    card.locator(".why .numbers summary").click()
    card.locator(".why tbody tr").first.wait_for()
    told = card.locator(".why tbody tr td:nth-child(2)").all_inner_texts()
    assert [told[place] for place in (0, 1, 3, 4)] == ["−1", "−2.5×10⁻⁹", "1,234.5", "4×10¹²"]
    card.locator(".why .copy").click()
    card.locator(".why .copy", has_text="Copied").wait_for()
    copied = [line.split("\t")[1] for line in page.evaluate("navigator.clipboard.readText()").split("\n")[1:6]]
    assert [float(copied[place]) for place in (0, 1, 3, 4)] == [-1.0, -2.5e-9, 1234.5, 4e12]


def test_hostile_names_are_shown_as_text(path, look):
    page = look(path)
    assert page.locator("h1").inner_text() == HOSTILE == page.title().removesuffix(" · Skiplens")
    assert HOSTILE in page.locator(".finding").first.inner_text()
    assert page.locator(".block").nth(2).get_attribute("data-name") == HOSTILE
    ticks = page.locator("#structure .plot .xtick text")
    assert ticks.all_text_contents() == ["1", "2", "3", "4"]  # as in the drawing
    assert (
        page.locator("img").count() == 0
        and page.locator("main b:not(.counts b):not(.reading b):not(.alarm-word)").count() == 0
    )


@pytest.mark.slow
def test_a_hostile_class_name_goes_through_the_whole_inspection(tmp_path, look):
    class Block(nn.Linear):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x + super().forward(x)

    model = type("<img src=x onerror=alert(1)>", (nn.Sequential,), {})(Block(4, 4), Block(4, 4), nn.Linear(4, 2))
    report = sl.inspect(model, (torch.randn(4, 4), torch.tensor([0, 1, 0, 1])), lenses=["structure"])
    page = look(report.save(tmp_path / "report.html"))
    assert page.locator("h1").inner_text() == "<img src=x onerror=alert(1)>"
    assert page.locator("img").count() == 0 and page.locator(".block").count() == 2


@pytest.mark.slow
def test_the_readings_can_be_downloaded(path, visit):
    page = visit(path)
    with page.expect_download() as download:
        page.locator("#download").click()
    assert download.value.suggested_filename == "readings.json"
    content = json.loads(Path(download.value.path()).read_text())
    assert content["title"] == HOSTILE and content["readings"][0]["values"]["block_names"] == list(NAMES)
    assert [found["code"] for found in content["findings"]] == [CODE, "model.eval()"]


@pytest.mark.slow
def test_nothing_is_wider_than_the_screen(whole_path, look):
    page = look(whole_path, **PHONE)
    page.locator(".block").nth(2).click()
    page.evaluate("document.querySelectorAll('details').forEach(details => { details.open = true; })")
    page.locator("figure tbody tr").last.wait_for()
    for width in (360, 320, 768):
        page.set_viewport_size({"width": width, "height": 740})
        assert page.evaluate("document.documentElement.scrollWidth") <= width


@pytest.mark.slow
def test_the_verdict_is_seen_at_once_on_a_phone(path, visit):
    page = visit(path, **PHONE)
    box = page.locator(".verdict p").bounding_box()
    assert box["y"] + box["height"] < PHONE["viewport"]["height"] / 2


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.slow
def test_words_can_be_read_in_both_looks(path, visit, scheme):
    """WCAG 2 AA: a contrast of 4.5 between words and what is behind them."""
    page = visit(path, color_scheme=scheme)
    assert page.locator("html").get_attribute("data-theme") == scheme
    word = "name => getComputedStyle(document.documentElement).getPropertyValue(name).trim()"
    paper, panel = page.evaluate(word, "--paper"), page.evaluate(word, "--panel")
    for name in ("--ink", "--soft", "--accent", "--join", "--warning", "--critical", "--good"):
        for behind in (paper, panel):
            assert contrast(page.evaluate(word, name), behind) >= 4.5, (name, behind)
    for name in ("--critical", "--warning"):
        assert contrast(page.evaluate(word, "--on-colour"), page.evaluate(word, name)) >= 4.5


@pytest.mark.slow
def test_the_look_is_changed_by_a_button_and_the_plots_follow(path, look):
    page = look(path)
    ink = "plot => getComputedStyle(plot.querySelector('.xtick text')).fill"
    plot = page.locator("#structure .plot").first
    light = plot.evaluate(ink)
    page.get_by_role("button", name="Dark look").click()
    assert plot.evaluate(ink) != light
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(13, 17, 23)"
    page.get_by_role("button", name="Light look").click()
    assert plot.evaluate(ink) == light


@pytest.mark.slow
def test_each_plot_has_words_and_numbers_for_a_screen_reader(path, look):
    page = look(path, unfolded=True)
    for figure in page.locator("figure").all():
        label = figure.get_by_role("group").first.get_attribute("aria-label")
        assert figure.locator("h3").inner_text() in label
        assert all(words in label for words in figure.locator("figcaption").all_inner_texts())
    figure = page.locator("#structure .why")
    figure.locator(".numbers summary").click()
    rows = figure.locator("tbody tr")
    rows.first.wait_for()
    assert rows.first.locator("td").all_inner_texts() == ["branch", "b0", "3"]
    assert rows.nth(2).locator("td").all_inner_texts() == ["branch", HOSTILE, "5"]


@pytest.mark.slow
def test_the_numbers_of_a_matrix_are_a_matrix(whole_path, look):
    page = look(whole_path, unfolded=True)
    matrix = page.locator("figure", has_text="Contribution of each pair")
    matrix.locator("summary").click()
    matrix.locator("tbody tr").first.wait_for()
    assert matrix.locator("thead th").all_inner_texts()[1:] == ["1", "2", "3", "4"]
    assert matrix.locator("tbody tr").nth(1).locator("td").all_inner_texts() == ["2", "0", "0.0625", "0", "0"]


def test_the_page_has_landmarks_and_an_orderly_outline(path, visit):
    page = visit(path)
    for role in ("banner", "navigation", "main", "contentinfo", "toolbar"):
        assert page.get_by_role(role).count() == 1, role
    levels = [int(tag[1]) for tag in page.locator("h1, h2, h3").evaluate_all("all => all.map(h => h.tagName)")]
    assert levels[0] == 1 and levels.count(1) == 1
    assert all(after - before <= 1 for before, after in pairwise(levels))
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.textContent") == "Skip to the verdict"
    page.keyboard.press("Enter")
    page.keyboard.press("Tab")
    assert page.locator(".verdict a").first.evaluate("link => link === document.activeElement")
    ids = page.locator("[id]").evaluate_all("all => all.map(e => e.id)")
    assert len(ids) == len(set(ids))
    for link in page.locator("a[href^='#']").all():
        assert link.get_attribute("href")[1:] in ids


@pytest.mark.slow
def test_printed_it_is_light_and_whole(path, look):
    page = look(path, color_scheme="dark")
    page.evaluate("dispatchEvent(new Event('beforeprint'))")
    page.emulate_media(media="print")
    assert page.locator("html").get_attribute("data-theme") == "light"
    assert page.locator(".finding.severity-note dl").is_visible()
    assert not page.locator(".tools").is_visible() and not page.locator("nav.contents").is_visible()
    widths = page.locator(".plot .main-svg:first-child").evaluate_all("all => all.map(e => e.clientWidth)")
    assert max(widths) <= 680
    page.evaluate("dispatchEvent(new Event('afterprint'))")
    page.emulate_media(media="screen")
    assert page.locator("html").get_attribute("data-theme") == "dark"
    assert not page.locator(".finding.severity-note dl").is_visible()
    assert page.pdf(format="A4").startswith(b"%PDF")


def test_names_roles_and_headings_are_what_a_screen_reader_needs(whole_path, look):
    """What axe asks of a page: names for all that can be pressed, no button inside a picture, heads of all columns."""
    page = look(whole_path, unfolded=True)
    page.locator(".block .hit").first.click()
    pressed = "button, a[href], summary, [role=button], [role=region], [role=group], [role=img], aside, nav"
    name = "e => (e.getAttribute('aria-label') || e.textContent).trim()"
    nameless = f"all => all.filter(e => !({name})(e)).map(e => e.outerHTML.slice(0, 80))"
    assert page.locator(pressed).evaluate_all(nameless) == []
    assert page.locator("[role=img] :is(button, a, [tabindex])").count() == 0
    assert page.locator("th").evaluate_all("all => all.filter(e => !e.textContent.trim()).length") == 0
    assert page.locator("[aria-hidden=true] [tabindex='0']").count() == 0
    regions = page.locator("[role=region]").evaluate_all("all => all.map(e => e.getAttribute('aria-label'))")
    assert len(regions) == len(set(regions))


def test_the_numbers_of_two_races_are_told_apart(tmp_path, look):
    rules = "signal_growth", "loss_at_start"
    findings = tuple(replace(finding("warning", sentence=f"{rule}: bad."), rule=rule) for rule in rules)
    readings = (structure(), *(raced(rule=rule) for rule in rules))
    page = look(Report("raced", readings, (), findings).save(tmp_path / "raced.html"))
    page.evaluate("document.querySelectorAll('details').forEach(details => { details.open = true; })")
    page.locator(".finding .numbers tbody tr").last.wait_for()
    regions = page.locator("[role=region]").evaluate_all("all => all.map(e => e.getAttribute('aria-label'))")
    assert len(regions) == len(set(regions)) and sum("Numbers of this plot" in region for region in regions) == 3, (
        "of a section too"
    )


def test_a_browser_that_cannot_unpack_says_so(path, visit):
    page = visit(path, script="delete window.DecompressionStream")
    page.locator(".plot").first.scroll_into_view_if_needed()
    page.locator(".plot .note").first.wait_for()
    assert "too old to draw the plot" in page.locator(".plot").first.inner_text()
    unfold(page)
    page.locator(".numbers summary").first.click()
    page.locator(".numbers tbody tr").first.wait_for()


def test_a_page_without_blocks_or_plots_has_no_drawing(tmp_path, visit):
    page = visit(Report("Net", (), (Problem("paths", "cannot be measured"),)).save(tmp_path / "r.html"))
    assert page.locator(".verdict").inner_text().startswith("Nothing could be measured.")
    assert page.locator(".block, .plot").count() == 0
    page.get_by_role("button", name="Dark look").click()


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
