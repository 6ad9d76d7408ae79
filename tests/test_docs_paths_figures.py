"""The pictures of the pages on paths: their script runs, and the pages show exactly what it draws."""

import pytest
import torch

from tests.test_docs import DOCS, _module
from tests.test_docs_figures import LARGEST_PICTURE, pictures_of


@pytest.fixture
def paths():
    torch.set_default_dtype(torch.float32)  # what a reader has; the fixture of all tests puts it back
    return _module(DOCS / "figures/paths.py")


def test_the_pages_show_what_the_script_draws(paths):
    names = [figure.name for figure in paths.figures(paths.Sizes(samples=2, steps=2, width=4))]
    drawn = {f"paths_{name}.svg" for name in names}
    assert len(drawn) == len(names)
    assert pictures_of(DOCS / "lenses/paths.md") | pictures_of(DOCS / "depth_during_training.md") == drawn
    assert drawn == {path.name for path in (DOCS / "images").glob("paths_*")}
    assert all(0 < (DOCS / "images" / name).stat().st_size < LARGEST_PICTURE for name in drawn)


def test_points_above_the_line_are_settings_that_got_deeper(paths):
    row = {"norm": "batch", "kind": "conv", "mean_depth_change_error": 0.1}
    rows = [row | {"mean_depth_before": 1.0, "mean_depth_after": 2.0}, row | {"seeds": 0}]
    points, line = paths.measured_depths(rows).marks
    assert (points.x, points.y, points.error) == ((1.0,), (2.0,), (0.1,))
    assert line.x == line.y == (0.0, 2.0)
