"""The explorer as a person has it: in a real browser. A core of these tests is quick; the rest is in the slow tier."""

import csv
import json
from itertools import pairwise
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from skiplens.explorer.views import theory_views
from tests.browser.contrast import contrast
from tests.browser.explorer_page import (
    curve,
    missing_for_a_screen_reader,
    pull,
    served,
    settled,
    visits,
    wait,
    wait_for_points,
)

PHONE = {"viewport": {"width": 390, "height": 844}, "has_touch": True}
NAMES = [view.name for view in theory_views()]


def field(page: Page, label: str):
    return page.get_by_label(label, exact=True)


def slider(page: Page, label: str):
    return page.get_by_label(f"{label}, slider")


def problem(page: Page, label: str):
    return page.locator(".field", has=field(page, label)).locator(".problem")


def go_to(page: Page, name: str) -> None:
    page.locator("nav.views a", has_text=name.capitalize()).click()
    page.wait_for_url(f"**/{name}?**")
    expect(page.locator("h1")).to_have_text(name.capitalize())
    settled(page)


@pytest.mark.slow
def test_each_view_is_drawn_and_fits_a_phone(explore):
    """From the first page through all views and back, on a phone."""
    page = settled(explore("/", **PHONE))
    page.wait_for_url(f"**/{NAMES[0]}?**")
    for name in (*NAMES[1:], NAMES[0]):
        go_to(page, name)
        expect(page.locator("nav [aria-current=page]")).to_have_text(name.capitalize())
        expect(page.locator(".says")).not_to_be_empty()
        expect(page.locator("pre").last).not_to_be_empty()
        wait(page, "[...document.querySelectorAll('.plot')].every(plot => plot.querySelector('.main-svg'))")
        marks = ":is(.bars path, .lines path, .points path, .heatmaplayer image)"
        wait(page, f"[...document.querySelectorAll('.plot')].every(plot => plot.matches(':has({marks})'))")
        assert page.locator(".plot").count() > 0
        assert page.evaluate("document.documentElement.scrollWidth") <= 390
    page.go_back()
    expect(page.locator("h1")).to_have_text(NAMES[-1].capitalize())


@pytest.mark.slow
def test_a_slider_changes_the_plot_the_words_and_the_address(explore):
    page = settled(explore("/paths?depth=50&beta=0.5"))
    before = curve(page)
    slider(page, "Depth ratio β").focus()
    for _ in range(10):
        page.keyboard.press("ArrowRight")
    expect(field(page, "Depth ratio β")).not_to_have_value("0.5")
    value = float(field(page, "Depth ratio β").input_value())
    assert value > 0.5
    page.wait_for_url(f"**beta={value:g}&**")
    wait(page, f"document.querySelector('#words').innerText.includes('{value:.3g}')")
    assert curve(page) != before and len(curve(page)) == 50
    field(page, "Depth p").fill("10")
    page.wait_for_url("**depth=10&**")
    wait_for_points(page, 10)
    assert float(slider(page, "Depth p").input_value()) == pytest.approx(1, abs=0.01)  # log10 of the depth
    expect(page.locator(".says")).to_contain_text("Of 10 layers")


@pytest.mark.slow
def test_the_network_is_pulled_and_played(explore):
    page = settled(explore("/paths?depth=30&beta=0.5"))
    light = "kind => Number(document.querySelector(`#network .${kind}`).style.strokeOpacity)"
    before = [page.evaluate(light, kind) for kind in ("trunk", "ribbon")]
    start = float(slider(page, "Depth ratio β").input_value())
    ends = [float(slider(page, "Depth ratio β").get_attribute(end)) for end in ("min", "max")]
    pull(page, "strength", 0, 7.6)  # a tenth of the 76 pixels that are the whole slider
    wanted = start + (ends[1] - ends[0]) / 10
    assert float(slider(page, "Depth ratio β").input_value()) == pytest.approx(wanted, abs=0.02 * (ends[1] - ends[0]))
    expect(field(page, "Depth ratio β")).not_to_have_value("0.5")
    wait(page, f"({light})('ribbon') > {before[1]}")
    wait(page, f"({light})('trunk') < {before[0]}")  # light moves from the trunk to the branches
    pull(page, "depth", -2000, 0)
    page.wait_for_url("**depth=2&**")
    wait_for_points(page, 2)
    play = page.locator("#play")
    expect(play).to_have_text("Play: weights grow, it gets deeper")
    play.click()
    expect(play).to_have_text("Stop")
    expect(play).to_have_text("Play: weights decay, it gets shallower")
    assert float(slider(page, "Depth ratio β").input_value()) == ends[1]
    page.get_by_text("A real network", exact=True).click()
    wait(page, "!document.querySelector('#network svg')")
    expect(play).to_be_hidden()


def test_a_training_is_played(explore):
    page = settled(explore("/paths?look_at=training&learner=ensemble_resnet&rate=0.002"))
    wait(page, "document.querySelector('#hero .plot')?.data?.length === 2")
    start = curve(page, "after 0 steps")
    assert sum(start) == pytest.approx(1) and curve(page, "before training") == start
    play = page.locator("#play")
    expect(play).to_have_text("Play: let it learn")
    play.click()
    expect(play).to_have_text("Stop")
    expect(play).to_have_text("Play: let it learn")
    expect(field(page, "Steps of training")).to_have_value("100")
    wait(page, "document.querySelector('#hero h3').innerText.includes('after 100 steps')")
    wait(page, f"{json.dumps('after 100 steps')} === document.querySelector('#hero .plot')?.data?.[0]?.name")
    end = curve(page, "after 100 steps")
    assert sum(end) == pytest.approx(1) and curve(page, "before training") == start
    depths = [sum(r * share for r, share in enumerate(shares)) for shares in (start, end)]
    expect(page.locator(".says")).to_contain_text("deeper" if depths[1] > depths[0] else "shallower")
    page.get_by_text("A real network", exact=True).click()
    expect(play).to_be_hidden()


def test_two_landscapes_have_one_scale_and_follow_each_other(explore):
    page = settled(explore("/curvature?look_at=landscapes&depth=4&trained=0"))
    wait(page, "document.querySelectorAll('#hero .js-plotly-plot').length === 2")
    wait(page, "[...document.querySelectorAll('#hero .plot')].every(plot => plot.data[0].zauto === false)")
    both = "name => [...document.querySelectorAll('#hero .plot')].map(plot => plot.data[0][name])"
    for name in ("zmin", "zmax", "contours"):
        first, second = page.evaluate(both, name)
        assert first == second
    heights = [height for plane in page.evaluate(both, "z") for row in plane for height in row]
    assert page.evaluate(both, "zmin")[0] <= min(heights) and max(heights) <= page.evaluate(both, "zmax")[0]
    ranges = "[...document.querySelectorAll('#hero .plot')].map(plot => plot._fullLayout.xaxis.range.map(Number))"
    # cells stay square, so that a little more is seen along one of the axes
    nearer = "{'xaxis.range[0]': -0.5, 'xaxis.range[1]': 0.25, 'yaxis.range[0]': -0.25, 'yaxis.range[1]': 0.5}"
    page.evaluate(f"() => {{ Plotly.relayout(document.querySelector('#hero .plot'), {nearer}); }}")
    wait(page, f"{ranges}[1][1] < 1")
    first, second = page.evaluate(ranges)
    assert second == first
    before = page.evaluate("document.documentElement.dataset.theme")
    page.locator("#theme").click()
    wait(page, f"document.documentElement.dataset.theme !== {before!r}")
    wait(page, "[...document.querySelectorAll('#hero .plot')].every(plot => plot.data[0].zauto === false)")
    page.locator("#theme").click()


@pytest.mark.slow
def test_a_late_answer_does_not_stay(explore):
    """Answers can come in another order than they were asked for; here an old one is put on top by hand."""
    page = settled(explore("/paths?depth=50"))
    field(page, "Depth p").fill("20")
    page.wait_for_url("**depth=20&**")
    wait_for_points(page, 20)
    old = "{data: {view: 'paths', query: '?depth=50', asked: [['50']]}}"
    with page.expect_request(lambda request: '"20"' in (request.post_data or "")):
        page.evaluate(f"window.dash_clientside.set_props('query', {old})")
    page.wait_for_load_state("networkidle")
    page.wait_for_url("**depth=20&**")


@pytest.mark.slow
def test_a_shared_address_restores_the_view_and_pages_do_not_see_each_other(explore):
    page = settled(explore("/paths?depth=50"))
    field(page, "Depth p").fill("33")
    page.get_by_label("C, width, ρ").check()
    page.wait_for_url("**depth=33&given=scale&**")
    field(page, "Width n").fill("100")
    page.wait_for_url("**width=100&**")
    wait_for_points(page, 33)
    other = settled(explore(f"/{page.url.split('/', 3)[3]}"))
    expect(field(other, "Width n")).to_have_value("100")
    expect(field(other, "Depth p")).to_have_value("33")
    expect(other.get_by_label("C, width, ρ")).to_be_checked()
    expect(other.locator("#words")).to_have_text(page.locator("#words").inner_text(), use_inner_text=True)
    assert curve(other) == curve(page)
    field(other, "Depth p").fill("44")
    wait_for_points(other, 44)
    page.reload()
    wait_for_points(settled(page), 33)


@pytest.mark.slow
def test_wrong_values_are_refused_beside_the_field(explore):
    page = settled(explore("/paths?depth=none&beta=2&nothing=1"))
    expect(problem(page, "Depth p")).to_contain_text("'none' is no number")
    expect(page.locator("#words .problem")).to_contain_text("'nothing', which this view does not know")
    expect(field(page, "Depth ratio β")).to_have_value("2")
    for words in ("2.5", ""):
        field(page, "Depth p").fill("20")
        expect(problem(page, "Depth p")).to_have_text("")
        expect(page.locator(".says")).to_contain_text("Of 20 layers")
        field(page, "Depth p").fill(words)
        expect(problem(page, "Depth p")).to_contain_text("Give a whole number from 2 to 1000")
        expect(page.locator(".says")).to_contain_text("Of 100 layers")
        page.wait_for_url("**depth=100&**")


@pytest.mark.slow
def test_a_network_is_measured_with_progress_while_another_page_answers(explore):
    page = explore("/paths?look_at=network&model=digits_resnet&seed=7&factor=2")
    page.locator("#progress:has(progress)", has_text="Measuring: ").wait_for()
    other = settled(explore("/paths?depth=20"))
    assert len(curve(other)) == 20
    settled(page)
    expect(page.locator("#hero h3")).to_have_text("Measured path spectrum and the theory's")
    shares = curve(page, "measured")
    assert len(shares) == 9 and sum(shares) == pytest.approx(1)
    slider(page, "Branches times").focus()
    page.keyboard.press("ArrowRight")
    wait(page, "!location.search.includes('factor=2&')")
    wait(page, f"(document.querySelector('#hero .plot')?.data?.[0]?.y?.[4] ?? {shares[4]!r}) !== {shares[4]!r}")


@pytest.mark.slow
def test_figures_numbers_and_code_can_be_taken_away(explore):
    page = settled(explore("/paths?depth=3&beta=1", permissions=["clipboard-read", "clipboard-write"]))
    for ending, start in (("PNG", b"\x89PNG"), ("SVG", b"<?xml"), ("CSV", b"series,")):
        with page.expect_download() as download:
            page.get_by_role("link", name=f"{ending} of Energy of paths by their length").click()
        assert download.value.suggested_filename == f"path_weights.{ending.lower()}"
        content = Path(download.value.path()).read_bytes()
        assert content.startswith(start)
    rows = [row for row in csv.DictReader(content.decode().splitlines()) if row["y"]]
    assert [float(row["y"]) for row in rows] == pytest.approx([1 / 6, 4 / 6, 1 / 6])
    page.get_by_role("button", name="Copy the code").click()
    page.get_by_text("Copied").first.wait_for()
    names: dict = {}
    exec(page.evaluate("navigator.clipboard.readText()"), names)
    assert names["result"].tolist() == pytest.approx(curve(page))
    details = page.locator(".below details.numbers")
    details.locator("summary").click()
    line = details.locator("tr", has_text="energy of all paths of this length")
    expect(line.locator("td:nth-child(3)")).to_have_text(["0.16667", "0.66667", "0.16667"])
    field(page, "Depth p").fill("2")
    expect(line.locator("td:nth-child(3)")).to_have_text(["0.5", "0.5"])


@pytest.mark.slow
def test_a_walk_is_taken_with_a_picture_held_beside_it(explore):
    page = settled(explore("/paths"))
    page.get_by_role("button", name="Hold this picture beside the next").click()
    page.wait_for_selector("#held .plot .main-svg")
    page.get_by_role("link", name="3", exact=True).click()
    expect(page.locator(".walk p")).to_contain_text("acts like one of 5")
    expect(page.locator(".walk [aria-current]")).to_have_text("3")
    expect(field(page, "Depth ratio β")).to_have_value("0.05")
    wait(page, "document.querySelectorAll('#held .plot .main-svg').length")
    ranges = (
        "[...document.querySelectorAll('#held .plot, #hero .plot')].map(plot => String(plot._fullLayout.yaxis.range))"
    )
    wait(page, f"new Set({ranges}).size === 1")
    page.get_by_role("button", name="Let go of A").click()
    expect(page.locator("#held figure")).to_have_count(0)


def test_what_belongs_to_another_view_is_not_seen_under_a_title(explore):
    """The answer that draws the second view is held back: until it comes nothing of the first is seen."""
    page, held = settled(explore("/paths")), []

    def hold(route):
        late = "hero.children" in route.request.post_data_json["output"]
        held.append(route) if late else route.continue_()

    page.route(lambda address: "_dash-update-component" in address, hold)
    page.locator("nav.views a", has_text="Curvature").click()
    expect(page.locator("h1")).to_have_text("Curvature")
    expect(page.locator("#hero .plot")).to_be_hidden()
    expect(page.locator(".says")).to_be_hidden()
    for route in held:
        route.continue_()
    page.unroute_all()
    expect(page.locator("#hero .plot")).to_be_visible()
    expect(page.locator("#hero h3")).to_contain_text("Eigenvalues of the Hessian")


def test_nothing_of_the_page_is_clipped_on_a_phone(explore):
    page = settled(explore("/paths", **PHONE))
    wide = "[...document.querySelectorAll('header a, header button, #panel input, .walk a, .tools button')]"
    assert page.evaluate(f"{wide}.every(part => part.getBoundingClientRect().right <= innerWidth)")


@pytest.mark.slow
def test_on_a_phone_the_picture_stays_in_sight_of_the_sliders(explore):
    page = settled(explore("/paths", **PHONE))
    page.evaluate("document.querySelector('#panel').scrollIntoView({block: 'end'})")
    box = page.locator("#hero .plot").bounding_box()
    handle = slider(page, "Depth ratio β").bounding_box()
    assert box["y"] >= 0 and box["y"] + box["height"] <= handle["y"] <= 844


@pytest.mark.slow
def test_both_looks_can_be_read_and_the_button_changes_them(explore):
    """WCAG 2 AA: a contrast of 4.5 between words and what is behind them."""
    page = settled(explore("/paths", color_scheme="dark"))
    word = "name => getComputedStyle(document.documentElement).getPropertyValue(name).trim()"
    tick = "document.querySelector('#hero .plot .xtick text')"
    fills = [""]
    for look, button in (("dark", "Light look"), ("light", "Dark look")):
        assert page.locator("html").get_attribute("data-theme") == look
        wait(page, f"{tick} && getComputedStyle({tick}).fill !== {fills[-1]!r}")
        fills.append(page.evaluate(f"getComputedStyle({tick}).fill"))
        for name in ("--ink", "--soft", "--accent", "--critical", "--good"):
            for behind in ("--paper", "--panel"):
                assert contrast(page.evaluate(word, name), page.evaluate(word, behind)) >= 4.5, (look, name, behind)
        assert contrast(page.evaluate(word, "--on-colour"), page.evaluate(word, "--accent")) >= 4.5
        page.get_by_role("button", name=button).click()
    page.reload()
    assert page.locator("html").get_attribute("data-theme") == "dark"


@pytest.mark.slow
def test_it_is_used_by_keyboard_alone_and_told_by_a_screen_reader(explore):
    page = settled(explore("/paths"))
    for role in ("banner", "main", "contentinfo", "form"):
        assert page.get_by_role(role).count() == 1, role
    named = page.get_by_role("navigation").evaluate_all("all => all.map(e => e.ariaLabel)")
    assert named == ["Views", "Guided walk"]
    assert page.locator("h1").count() == 1
    nameless = "all => all.filter(e => e.offsetParent && !(e.labels && e.labels.length) && !e.ariaLabel).length"
    assert page.locator("input").evaluate_all(nameless) == 0
    ids = page.locator("[id]").evaluate_all("all => all.map(e => e.id)")
    assert len(ids) == len(set(ids))
    stops = page.locator(".plot *").evaluate_all("all => all.filter(e => e.tabIndex >= 0).length")
    assert stops == 0  # a picture is no place for the keyboard
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.textContent") == "Skip to the controls"
    page.keyboard.press("Enter")
    page.keyboard.press("Tab")
    assert page.get_by_label("Theory").evaluate("element => element === document.activeElement")
    page.keyboard.press("Tab")
    page.keyboard.press("Control+a")
    page.keyboard.type("64")
    page.wait_for_url("**depth=64&**")
    page.keyboard.press("Tab")
    page.keyboard.press("Home")
    page.wait_for_url("**depth=2&**")
    expect(field(page, "Depth p")).to_have_value("2")
    page.get_by_text("C, width, ρ", exact=True).click()
    page.wait_for_url("**given=scale&**")
    expect(page.locator("label[aria-selected]")).to_have_count(0)  # a label cannot be selected, its button is


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_every_view_has_names_for_a_screen_reader(explore, name):
    page = settled(explore(f"/{name}"))
    assert missing_for_a_screen_reader(page) == []
    levels = page.locator("main :is(h1, h2, h3)").evaluate_all("all => all.map(e => Number(e.tagName[1]))")
    assert levels[0] == 1 and all(below <= above + 1 for above, below in pairwise(levels))


@pytest.mark.slow
def test_elsewhere_the_token_opens_the_door(browser, runs):
    with served(runs, host="0.0.0.0") as guarded, visits(browser, guarded) as explore:
        stranger = browser.new_context()
        assert stranger.new_page().goto(guarded.link.split("?")[0]).status == 403
        stranger.close()
        page = settled(explore(f"/paths?depth=7&token={guarded.guard.token}"))
        assert "token" not in page.url and len(curve(page)) == 7
        (cookie,) = page.context.cookies()
        assert cookie["httpOnly"] and cookie["sameSite"] == "Strict"
