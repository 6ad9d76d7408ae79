"""The drawing of the network on a report in a real browser: blocks that are chosen, zoomed, folded, and its card."""

from itertools import pairwise
from pathlib import Path
from xml.etree import ElementTree

import pytest

from skiplens.report.inspection import Problem, Report
from tests.browser.contrast import contrast, hexadecimal
from tests.browser.report_page import HOSTILE
from tests.report.readings import signal
from tests.report.test_findings_section import finding
from tests.sample_readings import structure


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


def test_a_page_without_blocks_or_plots_has_no_drawing(tmp_path, visit):
    page = visit(Report("Net", (), (Problem("paths", "cannot be measured"),)).save(tmp_path / "r.html"))
    assert page.locator(".verdict").inner_text().startswith("Nothing could be measured.")
    assert page.locator(".block, .plot").count() == 0
    page.get_by_role("button", name="Dark look").click()
