import pytest
import torch

from skiplens.plots.figure import Bars, Line, Points
from skiplens.plots.matplotlib_file import save_figure
from skiplens.report.lenses import figures_of
from tests.sample_readings import jacobians


def by_name(reading):
    return {figure.name: figure for figure in figures_of(reading)}


def test_a_reading_has_three_figures_and_each_can_be_drawn(tmp_path):
    figures = by_name(jacobians())
    assert set(figures) == {"singular_values_by_block", "spectrum_of_one_block", "network_histogram"}
    for name, figure in figures.items():
        save_figure(figure, tmp_path / f"{name}.svg")
        assert (tmp_path / f"{name}.svg").stat().st_size > 1000


def test_quantiles_of_each_block_are_the_readings():
    _, alone, outer, whole, _ = by_name(jacobians())["singular_values_by_block"].marks
    assert isinstance(whole, Line) and whole.y == (1.0, pytest.approx(0.9))
    assert (*outer.low, *outer.high) == pytest.approx((1.0, 0.9, 1.5, 2.0)) and outer.colour == whole.colour
    assert alone.y == pytest.approx((0.1, 1e-6))  # zero is drawn at the floor of a logarithmic axis


def test_the_block_whose_shortcut_matters_most_is_shown():
    figure = by_name(jacobians())["spectrum_of_one_block"]
    assert figure.title.endswith(" b")
    with_shortcut, alone, _ = figure.marks
    assert (min(with_shortcut.y), max(with_shortcut.y)) == pytest.approx((0.9, 2.0))
    assert (min(alone.y), max(alone.y)) == pytest.approx((1e-6, 1.0))


def test_the_histogram_holds_everything():
    (bars,) = by_name(jacobians())["network_histogram"].marks
    assert isinstance(bars, Bars) and sum(bars.y) == pytest.approx(1)


def test_one_block_is_a_point_and_nothing_is_no_figure():
    one = jacobians(
        singular_values={"a": torch.ones(2)},
        weights={"a": torch.full((2,), 0.5)},
        without_shortcut={},
        without_shortcut_weights={},
        counts=(2,),
        methods=("exact",),
    )
    figures = by_name(one)
    assert set(figures) == {"singular_values_by_block"}
    assert isinstance(figures["singular_values_by_block"].marks[0], Points)
