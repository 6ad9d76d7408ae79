"""The page with the papers' figures beside ours."""

from tools.kept_readings import LARGE, archive, unpack

from skiplens.papers.study import choose
from skiplens.plots.figure import Figure, Line
from skiplens.readings.store import Store
from tools import image_results, paper_figures


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


def test_what_is_drawn_from_kept_readings_has_them_all(tmp_path):
    """But for the large ones, which are measured again. If not: python -m tools.paper_figures FOLDER."""
    for shelf in ("laptop", "more_runs"):
        unpack(archive(shelf), tmp_path)
    store, drawn = Store(tmp_path / "store"), set()
    for study, item in paper_figures.shown():
        if item.name in image_results.ITEMS.get(study.name, ()) or not paper_figures.pictures(study, item):
            continue
        runs = paper_figures.planned(study, item)
        missing = {run.measure.rpartition(":")[2] for run in runs if not store.path(run.key).exists()}
        assert missing <= set(LARGE), item.name
        drawn.add(f"{study.name}/{item.name}")
    assert {"littwin2016_ensembles/fig1a", "li2016_shortcuts/fig8", "macdonald2023_regularity/fig2"} <= drawn


def test_a_figure_of_kept_readings_is_drawn_without_a_run(tmp_path, monkeypatch):
    for shelf in ("laptop", "more_runs"):
        unpack(archive(shelf), tmp_path)
    monkeypatch.setattr("skiplens.sweeps.executor.perform", None)
    for name in ("littwin2016_ensembles/fig1a", "li2016_shortcuts/fig4", "li2016_shortcuts/fig8"):
        ((study, item),) = choose(name)
        (figure,) = paper_figures.drawn(study, item, Store(tmp_path / "store"))
        assert figure.marks
        name = f"papers_{study.name}_{item.name}_{figure.name}.svg"
        assert figure.title in (paper_figures.FOLDER / name).read_text("utf-8")


def test_a_picture_is_the_same_bytes_each_time(tmp_path, monkeypatch):
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "0")
    figure = Figure("name", "title", "caption", "x", "y", (Line((0.0, 1.0), (1.0, 2.0), "line"),))
    paths = [tmp_path / f"{number}.svg" for number in range(2)]
    for path in paths:
        paper_figures._write(figure, path)
    assert paths[0].read_bytes() == paths[1].read_bytes() and "prefers-color-scheme" in paths[0].read_text("utf-8")
