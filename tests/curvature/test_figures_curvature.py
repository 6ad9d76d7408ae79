import math

import torch

from skiplens.curvature.report import eigenvalue_density, eigenvalues_by_size, extremes_by_block
from skiplens.plots.figure import Band, Bars, Line, Points, Reference
from skiplens.plots.matplotlib_file import save_figure
from skiplens.report.lenses import figures_of
from tests.sample_readings import curvature


def sampled(**changes):
    error = torch.full((8,), 0.01)
    return curvature(method="lanczos", eigenvalues=torch.zeros(0), density_error=error, **changes)


def of_kind(figure, kind):
    return [mark for mark in figure.marks if isinstance(mark, kind)]


def test_exact_eigenvalues_are_points_under_their_density():
    figure = eigenvalue_density(curvature())
    (points,) = of_kind(figure, Points)
    assert points.x == (-1.0, -0.5, 0.5, 2.0, 4.0) and not of_kind(figure, Band) and figure.y_log
    assert [mark.value for mark in of_kind(figure, Reference)] == [-1.0, 4.0]


def test_a_sampled_density_has_a_band_of_two_standard_errors():
    (band,) = of_kind(eigenvalue_density(sampled()), Band)
    assert math.isclose(band.high[0] - band.low[0], 0.04)


def test_the_tail_of_the_smoothing_is_a_gap():
    density = torch.tensor([1e-9] + [0.1] * 7)
    (line,) = of_kind(eigenvalue_density(sampled(density=density)), Line)
    assert math.isnan(line.y[0]) and line.y[1] == 0.1


def test_both_signs_are_counted_from_the_steepest():
    up, down = of_kind(eigenvalues_by_size(curvature()), Line)
    assert up.x == (0.5, 2.0, 4.0) and [round(share, 12) for share in up.y] == [0.6, 0.4, 0.2]
    assert down.x == (0.5, 1.0) and [round(share, 12) for share in down.y] == [0.4, 0.2]


def test_a_flat_loss_has_nothing_to_count():
    assert eigenvalues_by_size(curvature(nodes=torch.zeros(5))) is None


def test_blocks_have_bars_where_they_were_looked_at(tmp_path):
    assert extremes_by_block(curvature()) is None
    reading = curvature(block_values={"a": curvature(largest=9.0).values(), "b": curvature().values()})
    largest, smallest = of_kind(extremes_by_block(reading), Bars)
    assert largest.labels == ("a", "b") and largest.y == (9.0, 4.0) and smallest.y == (-1.0, -1.0)
    assert largest.error == ()
    for figure in figures_of(reading):
        save_figure(figure, tmp_path / f"{figure.name}.png")
    assert len(list(tmp_path.iterdir())) == 3


def test_thousands_of_eigenvalues_are_not_drawn_one_by_one():
    many = torch.linspace(-1, 4, 2001)
    (points,) = of_kind(eigenvalue_density(curvature(eigenvalues=many)), Points)
    assert points.x == (-1.0, 4.0)


def test_sampled_extremes_of_blocks_have_error_bars():
    block = sampled(extreme_residuals=torch.tensor([0.25, 0.5]))
    largest, smallest = of_kind(extremes_by_block(curvature(block_values={"a": block.values()})), Bars)
    assert largest.error == (0.5,) and smallest.error == (0.25,)
