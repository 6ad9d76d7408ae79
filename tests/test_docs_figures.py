"""The pictures of the documentation: their script runs, and the pages show exactly what it draws."""

import re
from pathlib import Path

import pytest
import torch

from tests.test_docs import DOCS, _module

LARGEST_PICTURE = 200 * 1024


@pytest.fixture
def tangent():
    torch.set_default_dtype(torch.float32)  # what a reader has; the fixture of all tests puts it back
    return _module(DOCS / "figures/tangent.py")


def pictures_of(page: Path) -> set[str]:
    return {Path(name).name for name in re.findall(r"!\[[^\]]+\]\(([^)]+)\)", page.read_text("utf-8"))}


def test_the_tangent_page_shows_what_its_script_draws(tangent):
    sizes = tangent.Sizes(networks=20, bundle=2, bundle_widths=(10, 20), trained_width=16, steps=3)
    names = [figure.name for figure in tangent.figures(sizes)]
    drawn = {f"tangent_{name}.svg" for name in names}
    assert len(drawn) == len(names)
    assert pictures_of(DOCS / "lenses/tangent.md") == drawn
    assert drawn == {path.name for path in (DOCS / "images").glob("tangent_*")}
    assert all(0 < (DOCS / "images" / name).stat().st_size < LARGEST_PICTURE for name in drawn)


def test_drawn_networks_lie_on_the_exact_curves(tangent):
    networks = [tangent.ResNet(5, 100, 2, 0.3), tangent.DenseNet(5, 100)]
    points = tangent.sampled_means(networks, 400)
    for network, value, error in zip(networks, points.y, points.error, strict=True):
        assert abs(value - tangent.kernel_moments(network).mean) < 5 * error
