"""What a report in a real browser says and gives away: its cards, tables and code, and names that try everything."""

import json
from pathlib import Path

import pytest
import torch
from torch import nn

import skiplens as sl
from skiplens.report.inspection import Report
from tests.browser.conftest import read_on, unfold
from tests.browser.report_page import CODE, HOSTILE, NAMES
from tests.sample_readings import curvature, structure


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
