"""The page with the papers' figures beside ours."""

from skiplens.plots.figure import Figure, Line
from tools import paper_figures


def test_the_page_is_what_the_results_say():
    """If not: python -m tools.paper_figures."""
    assert paper_figures.PAGE.read_text("utf-8") == paper_figures.page()


def test_every_figure_and_table_has_its_place_and_every_picture_is_on_the_page():
    text = paper_figures.PAGE.read_text("utf-8")
    for name in ("Figure 2", "Figure 9", "Figure 1a", "Figure 1f", "Figure 5", "Table 1"):
        assert f"### {name}: " in text
    assert text.count("[In the paper](https://arxiv.org/pdf/") == len(list(paper_figures.shown()))
    pictures = {path.name for path in paper_figures.FOLDER.glob("papers_*.svg")}
    assert pictures and all(f"(images/{name})" in text for name in pictures)


def test_a_picture_is_the_same_bytes_each_time(tmp_path, monkeypatch):
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "0")
    figure = Figure("name", "title", "caption", "x", "y", (Line((0.0, 1.0), (1.0, 2.0), "line"),))
    paths = [tmp_path / f"{number}.svg" for number in range(2)]
    for path in paths:
        paper_figures._write(figure, path)
    assert paths[0].read_bytes() == paths[1].read_bytes() and "prefers-color-scheme" in paths[0].read_text("utf-8")
