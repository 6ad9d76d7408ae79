import torch

from skiplens.plots.figure import Bars, Points, in_order
from skiplens.report.lenses import figures_of
from tests.report.readings import paths, signal
from tests.sample_readings import curvature, jacobians, structure


def figures_by_block() -> dict:
    readings = (
        structure(blocks=3),
        signal(blocks=3, dead_units=torch.tensor([0.0, 0.5, 0.0])),
        paths([1.0, 2.0, 1.0], block_energy=torch.ones(2), block_shares=torch.ones(2), pair_energy=torch.ones(2, 2)),
        curvature(block_values={"a": curvature().values(), "b": curvature().values()}),
        jacobians(),
    )
    drawn = (figure for reading in readings for figure in figures_of(reading))
    return {figure.name: figure for figure in drawn if figure.block_places}


def test_names_stand_side_by_side():
    assert in_order("ab") == (("a", 0.0), ("b", 1.0)) and in_order("a", start=1) == (("a", 1.0),)


def test_every_figure_by_block_says_where_its_blocks_are():
    assert set(figures_by_block()) == {
        "parameters_by_block",
        "signal_by_depth",
        "branch_against_shortcut",
        "scales_by_block",
        "shut_units_by_block",
        "energy_by_block",
        "energy_by_pair",
        "extremes_by_block",
        "singular_values_by_block",
    }


def test_a_bar_stands_at_its_block():
    for figure in figures_by_block().values():
        for mark in figure.marks:
            if isinstance(mark, Bars):
                assert figure.block_places == tuple((name, float(place)) for place, name in enumerate(mark.labels))


def test_lines_over_blocks_start_at_the_first_block():
    """The signal is told after each outermost block, from 1 on; 0 is the input of the first."""
    figures = figures_by_block()
    assert figures["signal_by_depth"].block_places == (("b0", 1.0), ("b1", 2.0), ("b2", 3.0))
    spread = figures["singular_values_by_block"]
    places = {place for _, place in spread.block_places}
    assert all(set(mark.x) == places for mark in spread.marks if isinstance(mark, Points))
