"""The pictures of the documentation: their scripts run, and the pages show exactly what they draw."""

import json
import math
import re
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from tools.doc_figures import drawing

from skiplens.plots.figure import Figure, Line
from tests.test_docs import DOCS, ROOT, _module

LARGEST_PICTURE = 200 * 1024
SCRIPTS = {  # script: the pages it draws for, and a size in which it is quick
    "convergence": (("convergence",), {"guaranteed": 3, "trapped": 3, "printed": 3}),
    "curvature": (("lenses/curvature",), {"depths": (2, 6), "lines_to": 10, "width": 2, "units": 1, "steps": (4,)}),
    "forecast": (("forecast",), {}),
    "jacobians": (("lenses/jacobians",), {"images": 2, "trained_images": 2, "iterations": 1}),
    "monitor": (("monitor",), {"digits": 4, "steps": 1, "every": 1}),
    "paths": (("lenses/paths", "depth_during_training"), {"samples": 3, "steps": 2, "width": 8}),
    "tangent": (
        ("lenses/tangent",),
        {"networks": 20, "bundle": 2, "bundle_widths": (10, 20), "trained_width": 16, "steps": 3},
    ),
    "training": (
        ("training", "landscape"),
        {"digits": 50, "epochs": 1, "runs": 1, "losses": (4.5,), "steps": 40, "points": 3}
        | {"slice_samples": 4, "deep_steps": 1},
    ),
}
SLOW = {"curvature", "jacobians", "monitor", "paths", "tangent"}


@pytest.fixture
def script():
    torch.set_default_dtype(torch.float32)  # what a reader has; the fixture of all tests puts it back
    return lambda name: _module(ROOT / f"tools/doc_figures/{name}.py")


def pictures_of(page: str) -> set[str]:
    text = (DOCS / f"{page}.md").read_text("utf-8")
    return {Path(name).name for name in re.findall(r"!\[[^\]]+\]\(([^)]+)\)", text)}


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.slow] if name in SLOW else []) for name in SCRIPTS]
)
def test_pages_show_what_their_script_draws(script, name):
    pages, few = SCRIPTS[name]
    module = script(name)
    prefix = "" if name == "training" else f"{name}_"
    names = [figure.name for figure in module.figures(module.Sizes(**few))]
    drawn = {f"{prefix}{name}.svg" for name in names}
    assert len(drawn) == len(names)
    assert set().union(*(pictures_of(page) for page in pages)) == drawn
    beginnings = ("training_", "landscape_") if name == "training" else (prefix,)
    kept = [path for path in (DOCS / "images").iterdir() if path.name.startswith(beginnings)]
    assert drawn == {path.name for path in kept}
    assert all(0 < path.stat().st_size < LARGEST_PICTURE for path in kept)


A_LINE_IS_WIDE = 0.01  # of the range of a series: 1.5 points of a picture that is 3 inches high; less cannot be seen


def assert_current(figure, recorded):
    """Words are the same, numbers as good as the same."""
    found = drawing.summary(figure)
    assert (found["title"], found["axes"]) == (recorded["title"], recorded["axes"])
    for mark, kept in zip(found["marks"], recorded["marks"], strict=True):
        assert mark.keys() == kept.keys()
        assert all(mark[word] == kept[word] for word in ("kind", "name"))
        for field in mark.keys() - {"kind", "name"}:
            (count, *numbers), (kept_count, *kept_numbers) = mark[field], kept[field]
            assert count == kept_count
            seen = A_LINE_IS_WIDE * max((abs(number) for number in kept_numbers), default=0.0)
            assert numbers == pytest.approx(kept_numbers, rel=A_LINE_IS_WIDE, abs=seen)


QUICK = {"forecast"}


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[] if name in QUICK else [pytest.mark.slow]) for name in SCRIPTS]
)
def test_pictures_are_those_of_the_present_code(script, name):
    module, record = script(name), json.loads(drawing.RECORD.read_text("utf-8"))
    for figure in module.figures(module.Sizes()):
        assert_current(figure, record[("" if name == "training" else f"{name}_") + figure.name])


def test_every_picture_has_a_record_and_a_dark_look():
    record = json.loads(drawing.RECORD.read_text("utf-8"))
    pictures = list((DOCS / "images").glob("*.svg"))
    drawn = {path.stem for path in pictures if not path.stem.startswith("papers_")}  # tests/tools looks at those
    assert drawn == set(record)
    assert all(drawing.DARK in path.read_text("utf-8") for path in pictures)


def test_an_old_picture_would_be_noticed():
    figure = Figure("f", "Title", "", "x", "y", (Line((0.0, 1.0, 2.0), (1.0, math.nan, 4.0), "l"),))
    recorded = drawing.summary(figure)
    assert_current(figure, recorded)
    moved = replace(figure, marks=(Line((0.0, 1.0, 2.0), (1.0, math.nan, 4.2), "l"),))
    for other in (moved, replace(figure, title="Other"), replace(figure, marks=(replace(figure.marks[0], name="m"),))):
        with pytest.raises(AssertionError):
            assert_current(other, recorded)


def test_a_dark_look_is_given_once_and_to_drawn_pictures_alone():
    svg = "<svg><defs></defs></svg>"
    assert drawing.with_dark_look(svg) == drawing.with_dark_look(drawing.with_dark_look(svg)) != svg
    assert drawing.with_dark_look("<svg></svg>") == "<svg></svg>"


def test_every_script_is_listed():
    assert {path.stem for path in (ROOT / "tools/doc_figures").glob("*.py")} == {*SCRIPTS, "drawing"}


def test_drawn_networks_lie_on_the_exact_curves(script):
    tangent = script("tangent")
    networks = [tangent.ResNet(5, 100, 2, 0.3), tangent.DenseNet(5, 100)]
    points = tangent.sampled_means(networks, 400)
    for network, value, error in zip(networks, points.y, points.error, strict=True):
        assert abs(value - tangent.kernel_moments(network).mean) < 5 * error


def test_networks_beside_zero_lie_on_the_closed_forms(script):
    curvature = script("curvature")
    task = curvature.whitened_digits()
    for n in (1, 2):
        points = curvature.conditions(task, (2, 4), n, 1e-4)
        for depth, value in zip(points.x, points.y, strict=True):
            exact = curvature.hessian_at_zero(*task, int(depth) // n, n).spectrum.condition_number
            assert value == pytest.approx(exact, rel=1e-2)  # the weights are a ten-thousandth of Xavier's


def test_drawn_certificates_lie_above_the_losses(script):
    convergence = script("convergence")
    *_, figure = convergence.figures(convergence.Sizes(20, 20, 20))
    losses, bounds = figure.marks[::2], figure.marks[1::2]
    for loss, bound in zip(losses, bounds, strict=True):
        proved = dict(zip(bound.x, bound.y, strict=True))
        common = [(value, proved[step]) for step, value in zip(loss.x, loss.y, strict=True) if step in proved]
        assert len(common) > 5
        assert all(value <= most for value, most in common)


def test_points_above_the_line_are_settings_that_got_deeper(script):
    row = {"norm": "batch", "kind": "conv", "mean_depth_change_error": 0.1}
    rows = [row | {"mean_depth_before": 1.0, "mean_depth_after": 2.0}, row | {"seeds": 0}]
    points, line = script("paths").measured_depths(rows).marks
    assert (points.x, points.y, points.error) == ((1.0,), (2.0,), (0.1,))
    assert line.x == line.y == (0.0, 2.0)
