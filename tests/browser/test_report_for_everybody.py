"""A report as everybody has it: in both looks, on a phone, in print, with a keyboard and a screen reader."""

from dataclasses import replace
from itertools import pairwise

import pytest

from skiplens.report.inspection import Report
from tests.browser.contrast import contrast
from tests.browser.report_page import HOSTILE, PHONE
from tests.report.test_findings_section import finding
from tests.report.test_verification_section import raced
from tests.sample_readings import structure


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
