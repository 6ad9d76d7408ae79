import json
import math

import pytest
import torch

from skiplens.curvature.landscape_reading import LandscapeReading
from skiplens.plots.figure import Contour, Figure, Surface
from skiplens.plots.matplotlib_file import save_figure
from skiplens.plots.plotly_json import plotly_json
from skiplens.report.lenses import figures_of

X = torch.linspace(-1, 1, 5)


def slice_of(losses: torch.Tensor, **changes) -> LandscapeReading:
    values = {
        "coordinates": X,
        "losses": losses,
        "directions": ("eigenvector of 4", "eigenvector of 2")[: losses.ndim],
        "loss": 1.0,
        "samples": 8,
        "normalised": "none",
        "norms": torch.ones(losses.ndim),
    }
    return LandscapeReading(**(values | changes))


def test_a_curve_stands_beside_its_parabola():
    losses = 1 + X + 2 * X**2 + X**3
    (figure,) = figures_of(slice_of(losses, slopes=torch.tensor([1.0]), curvatures=torch.tensor([4.0])))
    curve, parabola, model = figure.marks
    assert curve.y == pytest.approx(losses.tolist())
    assert parabola.y == pytest.approx((1 + X + 2 * X**2).tolist()) and parabola.dashed
    assert model.value == 0 and model.axis == "x" and not figure.y_log


def test_without_derivatives_there_is_no_parabola():
    (figure,) = figures_of(slice_of(X**2 + 1, curvatures=torch.tensor([math.nan])))
    assert len(figure.marks) == 2


def test_a_plane_has_contours_and_a_surface_with_the_first_direction_along_x():
    losses = 1 + X[:, None] + 10 * X[None, :] ** 2
    contours, surface = figures_of(slice_of(losses))
    (levels,), (heights,) = contours.marks, surface.marks
    assert isinstance(levels, Contour) and isinstance(heights, Surface)
    assert levels.rows[0] == pytest.approx(losses[:, 0].tolist()) and heights.rows == levels.rows
    assert contours.x_label == "multiple of the eigenvector of 4" and levels.name == "loss"


def test_wide_ranges_are_logarithmic():
    contours, _ = figures_of(slice_of(10 ** (4 * X[:, None].abs()) * torch.ones(5)))
    assert contours.marks[0].name == "log10 of the loss"
    assert contours.marks[0].rows[0] == pytest.approx([4, 2, 0, 2, 4])
    (curve,) = figures_of(slice_of(10 ** (4 * X.abs())))
    assert curve.y_log
    (negative,) = figures_of(slice_of(10 ** (4 * X.abs()) - 2))
    assert not negative.y_log


def test_places_without_a_loss_are_left_open_and_counted(tmp_path):
    losses = 1 + X[:, None] ** 2 + X[None, :] ** 2
    losses[0, 0], losses[4, 1] = math.nan, math.inf
    contours, surface = figures_of(slice_of(losses))
    assert math.isnan(contours.marks[0].rows[0][0]) and math.isnan(contours.marks[0].rows[1][4])
    assert "At 2 of 25 points the loss is not finite" in contours.caption
    assert plotly_json(contours)["data"][0]["z"][0][0] is None
    for figure in (contours, surface):
        save_figure(figure, tmp_path / "open.png")


def test_nothing_finite_nothing_drawn():
    assert figures_of(slice_of(torch.full((5, 5), math.nan))) == ()


PLANE = ((1.0, 2.0), (0.5, 1.5), ((1.0, 2.0), (3.0, float("nan"))), "<b>loss</b>")


@pytest.mark.parametrize("mark", [Contour(*PLANE), Surface(*PLANE)], ids=["contour", "surface"])
@pytest.mark.parametrize("ending", ["png", "svg"])
def test_planes_are_drawn_to_files(mark, ending, tmp_path):
    save_figure(Figure("plane", "t", "c", "x", "y", (mark,)), tmp_path / f"plane.{ending}")
    assert (tmp_path / f"plane.{ending}").stat().st_size > 1000


def test_planes_for_the_page():
    contour = json.loads(json.dumps(plotly_json(Figure("p", "t", "c", "a", "b", (Contour(*PLANE),))), allow_nan=False))
    trace = contour["data"][0]
    assert (trace["type"], trace["x"], trace["y"]) == ("contour", [1.0, 2.0], [0.5, 1.5])
    assert trace["z"] == [[1.0, 2.0], [3.0, None]] and contour["layout"]["yaxis"]["scaleanchor"] == "x"
    with pytest.raises(TypeError, match="No drawing for Surface"):  # files alone have it: the page's library cannot
        plotly_json(Figure("p", "t", "c", "a", "b", (Surface(*PLANE),)))


def test_a_flat_plane_is_drawn(tmp_path):
    flat = ((2.0, 2.0), (2.0, 2.0))
    save_figure(Figure("p", "t", "c", "x", "y", (Contour((0.0, 1.0), (0.0, 1.0), flat),)), tmp_path / "flat.png")
