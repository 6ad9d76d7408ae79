"""The page of an improvement: one drawing becomes the other by a button, with and without movement."""

import math
import re
from dataclasses import asdict
from pathlib import Path

import pytest
import torch

from skiplens.improvement.reading import Improvement
from skiplens.plots.network_drawing import BlockMark, NetworkDrawing
from skiplens.plots.section import Section
from skiplens.report import Report
from skiplens.report.page import Opening
from skiplens.report.page import page as report_page

SEEDS, STEPS = 7, 20
HOSTILE = "</script><img src=x onerror=alert(1)>"
PHONE = {"viewport": {"width": 390, "height": 800}}


def improvement(runs: int = 0) -> Improvement:
    blocks = tuple(BlockMark(f"b{i}", "identity", 2, 0.9) for i in range(3))
    before = NetworkDrawing(blocks, (1.0, 10.0, 100.0, 1e4), (1e4, 100.0, 10.0, 1.0))
    after = NetworkDrawing((*blocks, BlockMark("b3", "identity", 2, 0.1)), (1.0,) * 5, (1.0,) * 5)
    losses = torch.full((runs, STEPS if runs else 0), 2.0)
    losses[:, 8:] = math.inf
    return Improvement(
        changes=("scale each branch", HOSTILE),
        reasons=("branches add up", HOSTILE),
        gains=torch.tensor([3.0, 1.0]),
        code="model = changed(model)",
        tried=("as it is", "scaled"),
        scores=torch.tensor([1.0, -1.0]),
        costs=torch.tensor([20, 20]),
        left_out={"shortcuts": "it has some"},
        seemed_better="scaled",
        losses_before=losses,
        losses_after=torch.full_like(losses, 0.1),
        rates=(0.1, 0.1),
        gain=9.0,
        p=0.001,
        is_proven=True,
        guess=1.0,
        cost=900,
        steps=STEPS,
        optimizer="adam",
        drawings=(asdict(before), asdict(after)),
    )


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return Report("improved", (improvement(),)).save(tmp_path / "improved.html")


def shown(page, side: int, role: str) -> list[str]:
    paths = page.locator(f".pair > div:nth-child({side}) path.{role}").evaluate_all(
        "all => all.map(p => p.getAttribute('d'))"
    )
    return [re.sub(r"(\d)\.0\b", r"\1", path) for path in paths]


def settled(page, share: int) -> None:
    page.wait_for_selector(f".pair svg[data-share='{share}']")


def test_the_button_leads_back_and_forth(path, visit):
    page = visit(path)
    button, right = page.locator("button.morph"), page.locator(".pair > div:nth-child(2)")
    changed = shown(page, 2, "ribbon"), shown(page, 2, "signal")
    assert len(changed[0]) == 4 and changed[0][:3] != shown(page, 1, "ribbon")
    button.click()
    settled(page, 0)
    heights = [[float(y) for y in re.findall(r" (-?[\d.]+)", path)] for path in shown(page, 2, "signal")]
    (signal,) = shown(page, 1, "signal")
    rising = [float(y) for y in re.findall(r" (-?[\d.]+)", signal)]
    assert heights[0][0] == rising[0] and heights[0][-1] == rising[-1]
    assert right.locator("h3 span").inner_text() == "As it was" and button.inner_text() == "Show it changed"
    assert right.locator(".leaves").first.evaluate("g => getComputedStyle(g).opacity") == "1"
    assert right.locator(".appears").first.evaluate("g => getComputedStyle(g).opacity") == "0"
    button.press("Enter")
    settled(page, 1)
    assert (shown(page, 2, "ribbon"), shown(page, 2, "signal")) == changed
    assert right.locator("h3 span").inner_text() == "Changed"
    assert right.locator(".leaves").first.evaluate("g => getComputedStyle(g).opacity") == "0"


def test_it_moves_unless_a_person_wants_no_movement(path, visit):
    drawing = ".pair > div:nth-child(2) svg"
    page = visit(path)
    page.clock.install(time=0)
    page.clock.pause_at(1000)  # from here on time stands still unless it is told to go on
    page.locator("button.morph").click()
    page.clock.run_for(450)
    assert 0.45 < float(page.locator(drawing).get_attribute("data-share")) < 0.55, "half of the way"
    page.clock.run_for(500)
    assert page.locator(drawing).get_attribute("data-share") == "0"
    still = visit(path, reduced_motion="reduce")
    still.clock.install(time=0)
    still.clock.pause_at(1000)
    still.locator("button.morph").click()
    assert still.locator(drawing).get_attribute("data-share") == "0", "at once"


def test_a_diverging_race_is_marked_and_a_phone_needs_no_scrolling(tmp_path, look):
    page = look(Report("improved", (improvement(SEEDS),)).save(tmp_path / "improved.html"), **PHONE)
    assert page.locator(".series").inner_text().count(f"✕ as it is: diverged on {SEEDS} of {SEEDS} seeds") == 1
    beside = page.locator(".plot .textpoint").first.text_content()
    assert beside.strip() == f"diverged on {SEEDS} of {SEEDS} seeds"
    assert page.evaluate("document.documentElement.scrollWidth") == PHONE["viewport"]["width"]
    boxes = page.locator(".pair > div").evaluate_all("all => all.map(e => e.getBoundingClientRect().top)")
    assert boxes[1] > boxes[0]
    page.set_viewport_size({"width": 1000, "height": 800})
    boxes = page.locator(".pair > div").evaluate_all("all => all.map(e => e.getBoundingClientRect().top)")
    assert boxes[1] == boxes[0], "side by side"


def test_both_drawings_are_saved_as_a_card(path, visit):
    page = visit(path)
    with page.expect_download() as waiting:
        page.get_by_role("button", name="SVG", exact=True).click()
    card = Path(waiting.value.path()).read_text("utf-8")
    gone = page.locator(".pair .leaves path").count()
    assert all(words in card for words in ("As it was", "Changed", "made with skiplens improve", "signal ×10,000"))
    assert card.count('class="ribbon"') == page.locator(".pair .ribbon").count() - gone == 3 + 4


@pytest.mark.parametrize(
    "verdict", ["The loss ends at 0.0838 instead of 1.38: rest.", f"{'Wide words ' * 12}. The rest."]
)
def test_two_networks_that_are_compared_are_saved_as_a_card_whose_words_stay_on_it(tmp_path, visit, verdict):
    blocks = tuple(BlockMark(f"b{i}", "identity", 2, 0.25, f"block {i}") for i in range(3))
    drawings = [NetworkDrawing(blocks[:count], spectrum=(0.5, 0.5), caption="acts deep") for count in (2, 3)]
    sections = [Section(f"m{i}", f"network {i}", "", drawing=drawn) for i, drawn in enumerate(drawings)]
    path = tmp_path / "two.html"
    path.write_text(report_page("A against B", Opening(verdict, "unknown", ()), sections, (), {}))
    page = visit(path)
    with page.expect_download() as waiting:
        page.get_by_role("button", name="SVG", exact=True).click()
    card = Path(waiting.value.path()).read_text("utf-8")
    assert all(words in card for words in ("network 0", "network 1", "made with skiplens compare"))
    assert card.count('class="ribbon"') == 5 and "acts deep" not in card, "there is no room for the spectrum"
    page.evaluate("card => { document.body.innerHTML = card; }", card)
    ends = page.locator("body > svg text").evaluate_all("all => all.map(e => e.getBBox().x + e.getBBox().width)")
    assert max(ends) <= 1140 + 1
