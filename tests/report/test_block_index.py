import pytest

from skiplens.plots.figure import Figure, in_order
from skiplens.report.page import BlockIndex, opening
from tests.report.test_findings_section import finding
from tests.sample_readings import structure


@pytest.fixture
def index() -> BlockIndex:
    return BlockIndex(structure(blocks=3).block_names)


def test_names_rows_and_figures_become_numbers(index):
    assert index.of_names(("c", "a.weight", "a")) == [2, 0]
    assert index.of_row({"block": "b"}) == 1
    assert index.of_row({"block": "other"}) is None and index.of_row({"hypothesis": "b"}) is None
    figure = Figure("f", "t", "c", "x", "y", block_places=in_order(("b", "network", "c"), start=1))
    assert index.of_figure(figure) == [(1, 1.0), (2, 3.0)]


def test_a_verdict_begins_with_a_few_words():
    assert opening("Does not train: after 400 steps.", [finding()]).parts == ("Does not train", "After 400 steps.")
    assert opening("Healthy.", []).parts == ("Healthy.", "")
    long = f"{'word ' * 20}: so it is."
    assert opening(long, []).parts == (long, "")
