import pytest

from skiplens.plots.figure import Contour, Figure, Line
from skiplens.report.gallery import GalleryItem, GalleryPaper, gallery_page

HOSTILE = "</script><img src=x onerror=alert(1)>"


def verdict() -> dict:
    words = ("study", "item", "claim", "statement", "explanation", "printed_at", "paper", "recorded")
    numbers = {"ours": 1.0, "uncertainty": 0.5, "tolerance": None}
    return {**dict.fromkeys(words, HOSTILE), **numbers, "verdict": "not attempted", "changed": True}


@pytest.mark.slow
def test_the_gallery_draws_its_figures_and_shows_hostile_words_as_text(tmp_path, look):
    line = Figure("line", HOSTILE, HOSTILE, "x", "y", (Line((0.0, 1.0), (0.0, 1.0), HOSTILE),))
    plane = ((0.0, 1.0), (0.0, 1.0), ((0.0, 1.0), (2.0, 3.0)))
    levels = Figure("levels", "A plane", "It rises.", "x", "y", (Contour(*plane, HOSTILE),))
    item = GalleryItem("fig1", HOSTILE, (verdict(),), (line, levels), (("raw numbers", "a.csv"),), (HOSTILE,), ())
    paper = GalleryPaper("paper", HOSTILE, HOSTILE, HOSTILE, (item,))
    path = tmp_path / "index.html"
    path.write_text(gallery_page([paper], [("seed", HOSTILE)]))
    page = look(path)
    assert page.locator("figure h3").first.inner_text() == HOSTILE
    assert page.locator("h3.item").inner_text() == f"Figure 1: {HOSTILE}"
    assert page.locator(".plot").first.locator(".scatterlayer path").count() > 0
    assert page.locator(".plot").nth(1).locator(".contour path").count() > 0
    assert page.locator("main img").count() == 0
    page.get_by_role("button", name="Dark look").click()
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")


def test_words_of_a_study_have_a_minus_before_numbers_and_hyphens_elsewhere(tmp_path, visit):
    told = verdict() | {
        "explanation": "A kernel that converges has -1, or (-0.5); x^(L-1) is skip-free.",
        "paper": "-2",
    }
    item = GalleryItem("fig1", "A", (told | {"ours": -0.25},), (), (), (), ())
    path = tmp_path / "index.html"
    path.write_text(gallery_page([GalleryPaper("paper", "P", "B", "Q", (item,))], []))
    page = visit(path)
    assert page.locator("td .why").inner_text() == "A kernel that converges has −1, or (−0.5); x^(L-1) is skip-free."
    assert page.locator("td[data-label=paper]").inner_text() == "−2"
    assert page.locator("td[data-label=ours]").inner_text().startswith("−0.25")
