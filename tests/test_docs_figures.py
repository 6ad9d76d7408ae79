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


@pytest.fixture
def curvature():
    torch.set_default_dtype(torch.float32)
    return _module(DOCS / "figures/curvature.py")


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


def test_the_curvature_page_shows_what_its_script_draws(curvature):
    sizes = curvature.Sizes(depths=(2, 6), lines_to=10, width=2, units=1, steps=(4,))
    drawn = {f"curvature_{figure.name}.svg" for figure in curvature.figures(sizes)}
    assert pictures_of(DOCS / "lenses/curvature.md") == drawn
    assert drawn == {path.name for path in (DOCS / "images").glob("curvature_*")}
    assert all(0 < (DOCS / "images" / name).stat().st_size < LARGEST_PICTURE for name in drawn)


def test_networks_beside_zero_lie_on_the_closed_forms(curvature):
    task = curvature.whitened_digits()
    for n in (1, 2):
        points = curvature.conditions(task, (2, 4), n, 1e-4)
        for depth, value in zip(points.x, points.y, strict=True):
            exact = curvature.hessian_at_zero(*task, int(depth) // n, n).spectrum.condition_number
            assert value == pytest.approx(exact, rel=1e-2)  # the weights are a ten-thousandth of Xavier's


def test_the_pages_of_training_show_what_their_script_draws():
    torch.set_default_dtype(torch.float32)  # what a reader has; the fixture of all tests puts it back
    script = _module(DOCS / "figures/training.py")
    few = {"digits": 50, "epochs": 1, "runs": 1, "losses": (4.5,), "steps": 40, "points": 3}
    names = [figure.name for figure in script.figures(script.Sizes(**few, slice_samples=4, deep_steps=1))]
    drawn = {f"{name}.svg" for name in names}
    assert len(drawn) == len(names)
    assert pictures_of(DOCS / "training.md") | pictures_of(DOCS / "landscape.md") == drawn
    kept = [*(DOCS / "images").glob("training_*"), *(DOCS / "images").glob("landscape_*")]
    assert drawn == {path.name for path in kept}
    assert all(0 < path.stat().st_size < LARGEST_PICTURE for path in kept)


@pytest.mark.slow
def test_the_jacobians_page_shows_what_its_script_draws():
    torch.set_default_dtype(torch.float32)
    script = _module(DOCS / "figures/jacobians.py")
    names = [figure.name for figure in script.figures(script.Sizes(images=1, trained_images=2, iterations=1))]
    drawn = {f"jacobians_{name}.svg" for name in names}
    assert pictures_of(DOCS / "lenses/jacobians.md") == drawn
    assert drawn == {path.name for path in (DOCS / "images").glob("jacobians_*")}
    assert all(0 < (DOCS / "images" / name).stat().st_size < LARGEST_PICTURE for name in drawn)
