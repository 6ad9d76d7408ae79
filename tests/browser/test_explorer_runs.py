"""The explorer's view of runs in a real browser: cards, pages in their frames, readings that are drawn again."""

import json
from pathlib import Path

from playwright.sync_api import expect

from tests.browser.contrast import contrast, hexadecimal
from tests.browser.explorer_page import curve, missing_for_a_screen_reader, settled, wait, wait_for_points
from tests.explorer.run_folders import HOSTILE


def test_cards_say_what_the_runs_are_and_open_their_pages(explore):
    page = explore("/runs")
    expect(page.locator(".cards .card")).to_have_count(6)
    card = page.locator(".card", has=page.get_by_role("link", name="pair"))
    expect(card).to_contain_text("comparison, 20")
    expect(card).to_contain_text("numbers differ by more than seed-to-seed noise")
    card.get_by_role("link").click()
    page.wait_for_url("**run=pair**")
    expect(page.get_by_label("pair (comparison)")).to_be_checked()
    frame = page.frame_locator("iframe.report")
    expect(frame.locator("h1")).to_have_text("one against two")
    expect(frame.locator(".verdict")).to_contain_text("seed-to-seed noise")
    for look, button in (("light", "Dark look"), ("dark", "Light look")):  # that of the page around it
        expect(frame.locator("html")).to_have_attribute("data-theme", look)
        page.get_by_role("button", name=button).click()
    expect(frame.locator("html")).to_have_attribute("data-theme", "light")
    page.get_by_label("pair (comparison)").uncheck()
    page.get_by_label("gallery (study)").check()
    expect(page.frame_locator("iframe.report").locator("h1")).to_have_text("Papers reproduced")
    hidden = page.frame_locator("iframe.report").locator("a[href^=tables]")
    expect(hidden).to_have_count(1)  # it would lead out of the frame; the file stands below to download
    frame.locator(".provenance summary").first.click()
    expect(hidden).to_be_hidden()
    page.locator("summary", has_text="files to download").click()
    expect(page.get_by_role("link", name="tables/small_coin_heads.csv")).to_be_visible()
    page.get_by_label("small/coin").check()
    page.wait_for_url("**item=small%2Fcoin**")
    assert len(curve(settled(page), "")) == 8
    page.get_by_label("small_coin_heads").check()  # in a field that the choice brought
    page.wait_for_url("**table=small_coin_heads**")
    expect(page.locator("#words .problem")).to_contain_text("fewer than two columns of numbers")


def test_the_cards_can_be_read_and_told_by_a_screen_reader(explore):
    page = explore("/runs", color_scheme="dark")
    expect(page.locator(".cards .card")).to_have_count(6)
    levels = page.locator(":is(h1, h2, h3):not(.unseen)").evaluate_all("all => all.map(e => e.tagName)")
    assert levels == ["H1", *["H2"] * 6]
    assert missing_for_a_screen_reader(page) == []
    for button in ("Light look", "Dark look"):
        paper = page.locator("body").evaluate("e => getComputedStyle(e).backgroundColor")
        for words in page.locator(".card :is(a, p):not(:empty)").all():
            ink = words.evaluate("e => getComputedStyle(e).color")
            assert contrast(hexadecimal(ink), hexadecimal(paper)) >= 4.5, (button, words.text_content())
        page.get_by_role("button", name=button).click()
    page.locator(".card a").first.focus()
    page.keyboard.press("Enter")
    page.wait_for_url("**/runs?run=**")
    expect(page.locator("iframe.report")).to_have_count(1)
    assert missing_for_a_screen_reader(page) == []


def test_the_cards_fit_a_phone(explore):
    page = explore("/runs", viewport={"width": 390, "height": 844}, has_touch=True)
    expect(page.locator(".cards .card")).to_have_count(6)
    wide = "all => all.every(part => part.getBoundingClientRect().right <= innerWidth)"
    assert page.locator(".card, .card *").evaluate_all(wide)


def test_reports_are_opened_drawn_again_compared_and_downloaded(explore):
    page = explore("/runs?run=../secret")
    expect(page.locator("#chooser .problem")).to_contain_text("There is no '../secret'")
    expect(page.locator(".says")).to_contain_text("6 runs in")
    page.get_by_label("first (report)").check()
    expect(page.frame_locator("iframe.report").locator("h1")).to_have_text("First")
    page.get_by_label("Path spectrum").check()
    wait(page, "document.querySelector('#hero .plot')?.data")
    assert curve(settled(page), "signal") == [1 / 16, 4 / 16, 6 / 16, 4 / 16, 1 / 16]
    page.locator("summary", has_text="1 file to download").click()
    with page.expect_download() as download:
        page.get_by_role("link", name="readings.json").click()
    assert json.loads(Path(download.value.path()).read_text())["title"] == "First"
    page.get_by_label("second (report)").check()
    page.wait_for_url("**run=first%2Csecond&reading=paths**")
    wait_for_points(page, 5, "second")
    assert curve(page, "second") == [0.5, 0, 0, 0, 0.5]
    expect(page.locator("#rest th")).to_have_text(["number", "first", "second"])


def test_a_choice_made_while_the_fields_are_renewed_is_not_lost(explore):
    """The fields for two reports are held back: until they come, nothing can be chosen in the old ones."""
    page, held = explore("/runs?run=first"), []

    def hold(route):
        is_held = route.request.post_data_json["output"] == "fields.children" and not held
        held.append(route) if is_held else route.continue_()

    reading = page.get_by_label("Path spectrum")
    expect(reading).to_be_enabled()
    page.route(lambda address: "_dash-update-component" in address, hold)
    page.get_by_label("second (report)").check()
    page.wait_for_url("**run=first%2Csecond**")
    expect(reading).to_be_disabled()
    held[0].continue_()
    reading.check()
    page.wait_for_url("**run=first%2Csecond&reading=paths**")
    wait_for_points(page, 5, "second")
    page.unroute_all()


def test_a_study_is_opened_with_its_figures_and_tables(explore):
    page = settled(explore("/runs?run=study"))
    assert len(curve(page, "")) == 8
    page.get_by_label("small_coin_grid").check()
    page.wait_for_url("**table=small_coin_grid**")
    expect(page.locator("#hero h3")).to_have_text("loss against depth")
    expect(page.get_by_label("Logarithmic along")).to_be_visible()  # the table's columns can be chosen now


def test_hostile_names_are_text_and_paths_outside_are_refused(explore):
    page = explore("/runs")
    page.get_by_label(f"{HOSTILE} (report)").check()
    expect(page.frame_locator("iframe.report").locator("h1")).to_have_text(HOSTILE)
    page.get_by_label("first (report)").check()
    page.get_by_label("Path spectrum").check()
    page.wait_for_url("**reading=paths**")
    wait(page, "document.querySelectorAll('#hero .legendtext').length === 2")
    assert HOSTILE in page.locator("#hero .legendtext").all_text_contents()
    page.reload()
    settled(page)
    expect(page.get_by_label(f"{HOSTILE} (report)")).to_be_checked()
    assert page.locator("img").count() == 0
    home = page.url.split("/runs")[0]
    for name in ("../secret.txt", "%2e%2e%2fsecret.txt", "%252e%252e%252fsecret.txt", "/etc/passwd", "first/%00"):
        answer = page.request.get(f"{home}/files?name={name}")
        assert answer.status == 404 and answer.text().strip() != "secret"
