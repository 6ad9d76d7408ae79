"""Draw the pictures of `docs/lenses/paths.md` and `docs/depth_during_training.md`.

    python tools/doc_figures/paths.py [--png] [FOLDER]

A minute or two. Everything drawn at random has a seed, and the files hold no date: the same code writes the same bytes.
The pictures of the wide measurement are drawn from the numbers in `benchmarks/results/depth_during_training.json`.
"""

import json
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch

import skiplens as sl
from skiplens import data, zoo
from skiplens.base.randomness import Randomness
from skiplens.papers.littwin2016_ensembles.dynamics import spin_glass_depth
from skiplens.papers.littwin2016_ensembles.spin_glass.complexity import Mixture
from skiplens.papers.littwin2016_ensembles.spin_glass.hamiltonian import SpinGlass, random_points
from skiplens.paths.weights import path_weights
from skiplens.plots.figure import Figure, Line, Points, numbers
from skiplens.report.during_training.depth import depth_during_training
from skiplens.report.lenses import figures_of
from skiplens.training.recipe import Recipe

ROOT = Path(__file__).parents[2]
RESULTS = ROOT / "benchmarks/results/depth_during_training.json"


@dataclass(frozen=True)
class Sizes:
    """How much is drawn: the pictures of the pages, or (in tests) a few numbers for each."""

    samples: int = 16
    steps: int = 400
    width: int = 64


def figures(sizes: Sizes) -> Iterator[Figure]:
    """All pictures of both pages; the name of each is the name of its file."""
    yield from report_figures(sizes)
    yield weights_of_lengths()
    yield from followed(sizes)
    yield spin_glass()
    yield measured_depths(json.loads(RESULTS.read_text("utf-8"))["summary"])


def report_figures(sizes: Sizes) -> Iterator[Figure]:
    """What a report shows of the zoo's network for digits."""
    model = zoo.build("digits_resnet").eval()
    images = data.load("sample").first(sizes.samples).inputs
    reading = sl.path_spectrum(model, images, blocks=True, pairs=True, signs=8)
    yield from (replace(figure, name=f"digits_resnet_{figure.name}") for figure in figures_of(reading))


def weights_of_lengths() -> Figure:
    """The paper's ε_r² for three depth ratios."""
    lines = []
    for ratio in (0.1, 0.5, 2.0):
        shares = path_weights(100, ratio).square()
        lines.append(Line(numbers(range(1, 101)), numbers(shares), f"β = {ratio:g}"))
    return Figure(
        name="weights_of_lengths",
        title="Path lengths of a network with 100 layers",
        caption="The paper's law ε² for three depth ratios: the peak lies at β/(1+β) of the depth.",
        x_label="length of the path",
        y_label="share of the energy",
        marks=tuple(lines),
    )


def followed(sizes: Sizes) -> Iterator[Figure]:
    """The fully connected network of the paper on digits, without and with its batch-norm-like scale."""
    batch = data.load("sample").first(1000)
    samples = (batch.inputs.flatten(1), batch.targets)
    for name, options in {"plain": {"weight_scale": 0.3}, "scaled": {"scaling": "centred"}}.items():
        model = zoo.build("ensemble_resnet", width=sizes.width, input_features=784, classes=10, **options)
        recipe = Recipe(learning_rate=0.02, batch_size=100, steps=sizes.steps)
        history = depth_during_training(model, samples, recipe, every=max(1, sizes.steps // 20), samples=64)
        wanted = {"plain": {"norm_change_against_steps"}, "scaled": {"scales_against_steps"}}[name]
        for figure in figures_of(history):
            if figure.name in wanted | {"depth_against_steps", "forces_against_steps"}:
                yield replace(figure, name=f"{name}_{figure.name}", title=f"{figure.title}, {TITLES[name]}")


TITLES = {"plain": "no normalisation", "scaled": "with scales"}


def spin_glass() -> Figure:
    """The weight scale of a spin-glass loss under gradient descent."""
    generator = Randomness(0).child("spin glass").torch()
    lines = []
    for ratio in (0.1, 0.5, 2.0):
        glass = SpinGlass.sample(Mixture.of_network(5, ratio), 10, generator)
        history = spin_glass_depth(glass, random_points(1, 10, generator)[0], 0.01, steps=60)
        lines.append(Line(numbers(history.steps), numbers(history.mean_depth), f"β = {ratio:g}"))
    return Figure(
        name="spin_glass_depth",
        title="Mean path length on a spin-glass loss",
        caption="Gradient descent with free weights on losses of five orders; the length follows the weight scale.",
        x_label="steps",
        y_label="mean length",
        marks=tuple(lines),
    )


def measured_depths(rows: list[dict[str, Any]]) -> Figure:
    """Mean depth after training against that before it, one point a setting."""
    whole = [row for row in rows if "mean_depth_before" in row]
    marks: list[Any] = []
    for norm, name in (("none", "without normalisation"), ("batch", "with batch norm")):
        for kind in ("conv", "dense"):
            chosen = [row for row in whole if row["norm"] == norm and row["kind"] == kind]
            if chosen:
                before = numbers([row["mean_depth_before"] for row in chosen])
                after = numbers([row["mean_depth_after"] for row in chosen])
                error = numbers([row["mean_depth_change_error"] for row in chosen])
                marks.append(Points(before, after, f"{kind}, {name}", error))
    most = max(max(row["mean_depth_before"], row["mean_depth_after"]) for row in whole)
    equal = numbers(torch.linspace(0, most, 2))
    return Figure(
        name="depth_before_and_after",
        title="Mean depth before and after training",
        caption="One point a setting, mean over seeds with one standard error: above the line the network got deeper.",
        x_label="mean depth before training (branches)",
        y_label="mean depth after training (branches)",
        marks=(*marks, Line(equal, equal, "no change", dashed=True)),
    )


if __name__ == "__main__":
    from drawing import draw  # beside this script

    draw(figures(Sizes()), "paths_", __doc__)
