"""The curvature, Jacobians and tangent views of the explorer in a real browser."""

import csv
import io
import time

import pytest
from playwright.sync_api import expect

from tests.browser.explorer_page import PATIENCE, curve, pull, settled, wait

PICTURES = {
    "curvature": ("eigenvalues", "condition_against_depth", "way_down"),
    "jacobians": ("singular_values", "range_against_scale", "typical_against_depth"),
    "tangent": ("kernel_against_angle", "variance_against_depth", "variance_against_width", "growth_against_scale"),
}


def says(page):
    return page.locator(".says")


def hypothesis(page, label):
    return page.locator(".checks li", has_text=f"({label})")


def result_of(page):
    """What the code beside the picture leaves in `result`."""
    found: dict = {}
    exec(page.locator("pre").last.inner_text(), found)
    return found["result"]


def wait_for_curve(page, name, holds):
    """Wait until what is asked of a curve of the main picture holds: words come a frame before pictures."""
    end = time.monotonic() + PATIENCE
    while not holds(curve(page, name)):
        assert time.monotonic() < end, f"in vain: {name}"
        page.wait_for_timeout(50)


@pytest.mark.parametrize("name", PICTURES)
@pytest.mark.slow
def test_all_pictures_of_a_view_can_be_taken_away(explore, name):
    page = settled(explore(f"/{name}"))
    links = page.locator(".files a").evaluate_all("all => all.map(link => link.href)")
    home = page.url.split(f"/{name}")[0]
    starts = {"png": b"\x89PNG", "svg": b"<?xml", "csv": b"series,"}
    for figure in PICTURES[name]:
        for ending in starts if figure == PICTURES[name][0] else ("csv",):
            (link,) = [link for link in links if f"/{figure}.{ending}?" in link]
            answer = page.request.get(link)
            assert link.startswith(home) and answer.ok and answer.body().startswith(starts[ending]), link


class TestCurvature:
    @pytest.mark.slow
    def test_the_shortcut_depth_changes_the_plot_the_words_and_the_address(self, explore):
        page = settled(explore("/curvature?branch_depth=2&depth=6&width=2"))
        assert max(curve(page, "at zero weights")) > 0.1
        expect(says(page)).to_contain_text("at every depth")
        page.get_by_label("Shortcut depth n, slider").focus()
        page.keyboard.press("ArrowRight")
        page.wait_for_url("**branch_depth=3&**")
        expect(says(page)).to_contain_text(
            "The Hessian at zero vanishes for n = 3: gradient descent starts on a plateau"
        )
        wait_for_curve(page, "at zero weights", lambda heights: max(heights) == 0)

    @pytest.mark.slow
    def test_a_shared_address_restores_the_view_and_its_code_its_numbers(self, explore):
        words = "branch_depth=1&depth=5&initialisation=xavier&data=rotation&width=3"
        page = settled(explore(f"/curvature?{words}&seed=4"))  # as an address of before the landscapes was
        page.wait_for_url(f"**?look_at=hessian&{words}&trained=100&seed=4")  # written when the controls have answered
        expect(page.get_by_label("Xavier")).to_be_checked()
        expect(page.get_by_label("rotation")).to_be_checked()
        expect(page.get_by_label("Network depth", exact=True)).to_have_value("5")
        # Threads of the server share the work of LAPACK otherwise than this one: the smallest eigenvalue is 3e-6 of the
        # largest, and rounding is relative to the largest.
        expected = result_of(page).tolist()
        assert curve(page, "where training starts") == pytest.approx(expected, abs=1e-12 * max(map(abs, expected)))


@pytest.mark.slow
class TestJacobians:
    def test_the_weight_scale_changes_the_plot_the_words_and_the_address(self, explore):
        page = settled(explore("/jacobians?scale=0.9&width=30"))
        before = curve(page, "W, theory")
        expect(says(page)).to_contain_text("With a skip the factor is 1 at any depth")
        page.get_by_label("Weight scale s", exact=True).fill("1.5")
        page.wait_for_url("**scale=1.5&**")
        expect(says(page)).to_contain_text("too large for a skip to help")
        wait_for_curve(page, "W, theory", lambda heights: heights != before)

    def test_a_topic_has_its_own_controls(self, explore):
        page = settled(explore("/jacobians?width=30"))
        expect(page.get_by_label("Width", exact=True)).to_be_visible()
        expect(page.get_by_label("Margin δ", exact=True)).to_be_hidden()
        page.get_by_label("the theorem").check()
        page.wait_for_url("**topic=theorem&**")
        expect(page.get_by_label("Margin δ", exact=True)).to_be_visible()
        expect(page.get_by_label("Width", exact=True)).to_be_hidden()
        page.get_by_label("blocks", exact=True).check()
        expect(page.locator("#hero h3")).to_have_text("Blocks from 30 to 7 features")

    def test_hypotheses_turn_red_and_blue(self, explore):
        page = settled(explore("/jacobians?topic=theorem"))
        expect(page.locator(".checks .holds")).to_have_count(18)
        page.get_by_label("ReLU").check()
        expect(hypothesis(page, "S1")).to_have_class("check fails")
        expect(hypothesis(page, "S1")).to_contain_text("Use tanh")
        expect(hypothesis(page, "R3")).to_have_class("check holds")
        page.get_by_label("Margin δ, slider").focus()
        page.keyboard.press("Home")
        expect(hypothesis(page, "R3")).to_have_class("check fails")
        page.get_by_label("tanh", exact=True).check()
        expect(hypothesis(page, "S1")).to_have_class("check holds")
        page.wait_for_url("**nonlinearity=tanh&**margin=0&**")
        page.reload()
        settled(page)
        expect(hypothesis(page, "R3")).to_have_class("check fails")
        assert result_of(page)["R3"] == "fails"

    def test_the_mnist_networks_are_measured_with_progress(self, explore):
        page = explore("/jacobians?topic=block&width=20&mnist=on&seed=8")
        page.locator("#progress progress").wait_for()
        settled(page)
        page.get_by_role("heading", name="Second block of the MNIST networks").wait_for()


@pytest.mark.slow
class TestTangent:
    def test_finite_networks_are_drawn_over_the_curves(self, explore):
        page = settled(explore("/tangent?depth=3&width=50&networks=10"))
        wait(page, "document.querySelector('#hero .plot')?.data?.length === 17")
        page.get_by_label("Draw finite networks").uncheck()
        wait(page, "document.querySelector('#hero .plot')?.data?.length === 4")
        expect(page.get_by_label("Networks drawn", exact=True)).to_be_hidden()
        assert curve(page, "ResNet") == pytest.approx(result_of(page).tolist(), rel=1e-12, abs=1e-12)

    def test_progress_is_shown_and_the_curves_do_not_wait_for_it(self, explore):
        page = explore("/tangent?depth=60&width=700&networks=60&seed=5")
        page.locator("#progress:has(progress)", has_text="Measuring: ").wait_for()
        wait(page, "document.querySelector('#hero .plot .main-svg') && document.querySelector('#progress progress')")
        page.get_by_label("Draw finite networks").uncheck()
        settled(page)

    def test_the_marked_scale_follows_the_depth(self, explore):
        page = settled(explore("/tangent?depth=4&sampled=off"))
        expect(page.locator(".facts")).to_contain_text("0.5")
        page.get_by_label("Depth L", exact=True).fill("100")
        page.wait_for_url("**depth=100&**")
        tile = page.locator(".facts div", has_text="marked scale")
        expect(tile.locator("dd")).to_have_text("0.1")
        expect(page.locator("figure", has_text="against the scale of its branches")).to_contain_text("α = 1·L^(−1/2)")
        expect(says(page)).to_contain_text("too large for this depth")

    def test_the_network_is_pulled(self, explore):
        page = settled(explore("/tangent?depth=10&branch_scale=0.2&branch_depth=2&sampled=off"))
        caption = page.locator("#network p")
        expect(caption).to_contain_text("grows 1.48 times over 10 blocks, (1 + α^m)^L")  # 1.04^10
        scale = page.get_by_label("Branch scale α, slider")
        start, low, high = (float(scale.evaluate(f"e => e.{name}")) for name in ("value", "min", "max"))
        pull(page, "strength", 0, 15.2)  # a fifth of the 76 pixels that are the whole slider
        assert float(scale.input_value()) == pytest.approx(start + (high - low) / 5, abs=0.02 * (high - low))
        expect(page.get_by_label("Branch scale α", exact=True)).not_to_have_value("0.2")
        pull(page, "depth", -2000, 0)
        page.wait_for_url("**depth=1&**")
        expect(caption).to_contain_text("over 1 block,")
        page.get_by_label("Depth L", exact=True).fill("100")
        page.get_by_label("Branch scale α", exact=True).fill("2")
        expect(caption).to_contain_text("grows 10⁷⁰ times over 100 blocks")  # 5^100
        page.locator("nav.views a", has_text="Curvature").click()
        wait(page, "!document.querySelector('#network svg')")

    def test_a_report_without_a_kernel_cannot_be_laid_over_the_curves(self, explore):
        page = settled(explore("/tangent?sampled=off"))
        assert curve(page, "ResNet")
        page.get_by_label("first", exact=True).check()
        page.wait_for_url("**ghost=first**")
        expect(page.locator(".problem", has_text="has no tangent kernel between vectors")).to_be_visible()

    def test_a_depth_out_of_range_is_refused_beside_the_field(self, explore):
        page = settled(explore("/tangent?sampled=off"))
        page.get_by_label("Depth L", exact=True).fill("1000")
        row = page.locator(".field", has=page.get_by_label("Depth L", exact=True))
        expect(row.locator(".problem")).to_contain_text("Give a whole number from 1 to 100")

    def test_numbers_taken_away_are_those_of_the_plot(self, explore):
        page = settled(explore("/tangent?architecture=densenet&depth=3&sampled=off"))
        link = page.locator(".files a", has_text="CSV of Tangent kernel against angle").get_attribute("href")
        text = page.request.get(f"{page.url.split('/tangent')[0]}{link}").text()
        rows = [row for row in csv.DictReader(io.StringIO(text)) if row["series"] == "DenseNet"]
        assert [float(row["y"]) for row in rows] == pytest.approx(curve(page, "DenseNet"), rel=1e-12)
