"""The pictures of the page on convergence: their script runs, and the page shows exactly what it draws."""

import pytest
import torch

from tests.test_docs import DOCS, _module
from tests.test_docs_figures import LARGEST_PICTURE, pictures_of


@pytest.fixture
def convergence():
    torch.set_default_dtype(torch.float32)  # what a reader has; the fixture of all tests puts it back
    return _module(DOCS / "figures/convergence.py")


def test_the_page_shows_what_its_script_draws(convergence):
    drawn = {f"convergence_{figure.name}.svg" for figure in convergence.figures(convergence.Sizes(20, 20, 20))}
    assert pictures_of(DOCS / "convergence.md") == drawn
    assert drawn == {path.name for path in (DOCS / "images").glob("convergence_*")}
    assert all(0 < (DOCS / "images" / name).stat().st_size < LARGEST_PICTURE for name in drawn)


def test_drawn_certificates_lie_above_the_losses(convergence):
    *_, figure = convergence.figures(convergence.Sizes(20, 20, 20))
    losses, bounds = figure.marks[::2], figure.marks[1::2]
    for loss, bound in zip(losses, bounds, strict=True):
        proved = dict(zip(bound.x, bound.y, strict=True))
        common = [(value, proved[step]) for step, value in zip(loss.x, loss.y, strict=True) if step in proved]
        assert len(common) > 5
        assert all(value <= most for value, most in common)
