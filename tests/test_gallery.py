"""The gallery, the live report and the notebook: they are what the present code makes of what was measured."""

import ast
import json
import re

import pytest
import torch

from skiplens.paths.reading import PathSpectrum
from skiplens.plots.figure import Figure, Line
from skiplens.plots.network_drawing import BlockMark, NetworkDrawing
from skiplens.readings.finding import Finding
from skiplens.report.notebook import inline, network_svg
from tests.test_docs import DOCS, ROOT, _module
from tools import gallery

NOTEBOOK = DOCS / "first_look.ipynb"
LARGEST = 300 * 1024  # bytes of a file that is kept


def cells() -> list[str]:
    content = json.loads(NOTEBOOK.read_text("utf-8"))
    return ["".join(cell["source"]) for cell in content["cells"] if cell["cell_type"] == "code"]


def run(sources: list[str]) -> list[object]:
    """What each cell shows: the value of its last line where that is an expression."""
    names: dict[str, object] = {"__name__": "__notebook__"}
    shown = []
    for source in sources:
        *lines, last = ast.parse(source).body
        value = isinstance(last, ast.Expr)
        exec(compile(ast.Module(lines if value else [*lines, last], []), "cell", "exec"), names)
        shown.append(eval(compile(ast.Expression(last.value), "cell", "eval"), names) if value else None)
    return shown


def test_the_page_is_that_of_the_readings():
    assert gallery.PAGE.read_text("utf-8") == gallery.page(), "python -m tools.gallery writes it"


def test_every_network_is_kept_small_and_drawn():
    kept = {path.name.removesuffix(".json.gz"): path for path in (DOCS / "live").iterdir()}
    assert set(kept) == {"report", *gallery.NETWORKS}
    assert len(gallery.NETWORKS) == 10
    assert all(path.stat().st_size < LARGEST for path in kept.values())
    made = dict(_module(DOCS / "live_pages.py").made())
    assert set(made) == {f"live/{name}.{ending}" for name in kept for ending in ("html", "svg")}
    assert all(made[f"live/{name}.html"].lower().startswith("<!doctype html>") for name in kept)


@pytest.mark.slow
@pytest.mark.parametrize("name", gallery.NETWORKS)
def test_sentences_are_those_of_a_look_today(name):
    torch.set_default_dtype(torch.float32)  # what a reader has; the fixture of all tests puts it back
    assert numbers_apart(gallery.learnt(gallery.measured(name))) == numbers_apart(gallery.learnt(gallery.kept(name)))


def numbers_apart(lines: list[str]) -> list[str]:
    """The words; numbers differ in their last digit from machine to machine."""
    return [re.sub(r"[0-9][0-9.,e+-]*", "#", line) for line in lines]


def test_a_drawing_stands_alone_and_escapes_words():
    blocks = (BlockMark("first", "identity", 2, 0.5), BlockMark("<b>", "projection", 2, 0.25, severity="critical"))
    drawing = NetworkDrawing(blocks, (1.0, 2.0, 4.0), (4.0, 2.0, 1.0), (0.2, 0.5, 0.3), "acts <1> deep")
    svg = network_svg(drawing, "<script>")
    assert svg.count('class="ribbon"') == 2
    assert svg.count('<use href="#') == 2 and "viewBox" not in svg.split(">")[0], "it is laid out for where it stands"
    assert svg.count("prefers-color-scheme: dark") == 1
    assert "<script>" not in svg
    assert "acts &lt;1&gt; deep" in svg
    widths = [float(width) for width in re.findall(r'class="ribbon" d="[^"]+" stroke-width="([\d.]+)"', svg)]
    assert widths == sorted(widths, reverse=True)  # the first branch has twice the share of the second


def test_a_report_in_a_notebook_is_text():
    finding = Finding("rule", "warning", "<i>bad</i>", 2.0, 1.0, "source", "Change it.")
    shown = inline("<b>", ("Verdict & more", ""), None, [finding])
    assert "<li><b>warning</b>: &lt;i&gt;bad&lt;/i&gt; Change it.</li>" in shown
    assert "&lt;b&gt;" in shown
    assert "Verdict &amp; more" in shown
    assert "<img" not in shown


def test_a_figure_shows_itself():
    assert "<svg" in Figure("f", "Title", "", "x", "y", (Line((0.0, 1.0), (1.0, 2.0)),))._repr_svg_()


@pytest.mark.slow
def test_the_notebook_runs_and_shows_what_it_promises():
    torch.set_default_dtype(torch.float32)
    blocks, report, figure, _, weaker = run(cells())
    assert len(blocks) == 8
    assert "<img" in report._repr_html_()
    assert "<svg" in figure._repr_svg_()
    assert weaker.reading(PathSpectrum).mean_depth < report.reading(PathSpectrum).mean_depth / 2


def test_the_notebook_holds_no_output_and_no_odd_cell():
    content = json.loads(NOTEBOOK.read_text("utf-8"))
    assert content["nbformat"] == 4
    assert {cell["cell_type"] for cell in content["cells"]} == {"code", "markdown"}
    assert all(cell.get("outputs", []) == [] for cell in content["cells"])


def test_a_broken_cell_would_be_noticed():
    assert run(["x = 1", "y = x\ny + 1"]) == [None, 2]
    with pytest.raises(NameError):
        run(["nothing"])


def test_the_start_page_shows_the_network_and_links_the_report():
    home = (DOCS / "index.md").read_text("utf-8")
    assert "live/report.svg" in home
    assert "(live/report.html)" in home
    words = [path.read_text("utf-8") for path in (ROOT / "README.md", *DOCS.rglob("*.md"))]
    assert not any(re.search(r"\bcoming (soon|later)\b", text, re.IGNORECASE) for text in words)
