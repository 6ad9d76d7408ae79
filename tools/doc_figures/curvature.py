"""Pictures of `docs/lenses/curvature.md`: `python tools/doc_figures/curvature.py [--png] [FOLDER]`; about a minute.

Everything drawn at random has a seed, and the files hold no date: the same code writes the same bytes.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn

import skiplens as sl
from skiplens import data, zoo
from skiplens.curvature.reading import HessianSpectrum
from skiplens.linalg.second_moments import second_moments
from skiplens.papers.li2016_shortcuts.hessian.at_zero import hessian_at_zero
from skiplens.papers.li2016_shortcuts.hessian.linear import linear_hessian, plain_units, shortcut_units
from skiplens.papers.li2016_shortcuts.hessian.spectrum import spectrum_of
from skiplens.plots.figure import Band, Figure, Line, Points, numbers
from skiplens.report.lenses import figures_of


@dataclass(frozen=True)
class Sizes:
    """How much is computed: the pictures of the page, or (in tests) a few numbers for each."""

    depths: tuple[int, ...] = (2, 4, 6, 12, 18, 24)
    lines_to: int = 10_000
    width: int = 8
    units: int = 8
    steps: tuple[int, ...] = (10, 80)


def figures(sizes: Sizes) -> Iterator[Figure]:
    """All pictures of the page; the name of each is the name of its file."""
    task = whitened_digits()
    yield condition_against_depth(task, sizes)
    yield steepest_against_depth(task, sizes)
    yield from report_figures(sizes)
    yield sampled_beside_exact(task, sizes)


def report_figures(sizes: Sizes) -> Iterator[Figure]:
    """What `skiplens inspect --lens curvature` shows of the small residual network."""
    report = sl.inspect(zoo.build("digits_resnet", width=sizes.width), data.load("sample"), lenses=["curvature"])
    reading = report.reading(HessianSpectrum)
    assert reading is not None
    yield from (replace(figure, name=f"digits_resnet_{figure.name}") for figure in figures_of(reading))


def whitened_digits() -> tuple[Tensor, Tensor]:
    """Ten whitened components of the embedded digits, and their classes as rows with a single one."""
    digits = data.sample()
    inputs = data.fit_whitening(digits.images, 10)(digits.images).double()
    return inputs, nn.functional.one_hot(digits.labels.long(), 10).double()


def small_weights(depth: int, scale: float) -> Tensor:
    """`scale` times Xavier's weights, ten by ten."""
    return (
        scale
        * torch.randn(depth, 10, 10, generator=torch.Generator().manual_seed(depth), dtype=torch.float64)
        / 10**0.5
    )


def conditions(task: tuple[Tensor, Tensor], depths: tuple[int, ...], branch_depth: int, scale: float) -> Points:
    """Condition numbers of linear networks with random weights; without shortcuts where there are no branches."""
    moments, found = second_moments(*task), []
    fitting = [depth for depth in depths if depth % max(1, branch_depth) == 0]
    for depth in fitting:
        weights = small_weights(depth, scale)
        units = shortcut_units(weights, branch_depth) if branch_depth else plain_units(weights)
        found.append(spectrum_of(linear_hessian(units, moments)).condition_number)
    name = f"shortcuts over {branch_depth}, beside zero" if branch_depth else "no shortcuts, Xavier's weights"
    return Points(numbers(fitting), numbers(found), name)


def depths_of_lines(to: int) -> list[int]:
    """Even depths at equal distances on a logarithmic axis."""
    return sorted({2 * round(10 ** (step / 10) / 2) for step in range(3, 41) if 2 <= 10 ** (step / 10) <= to})


def condition_against_depth(task: tuple[Tensor, Tensor], sizes: Sizes) -> Figure:
    """At zero in closed form, beside zero by the exact Hessian."""
    depths = depths_of_lines(sizes.lines_to)
    lines = [
        Line(
            numbers(depths),
            numbers([hessian_at_zero(*task, depth // n, n).spectrum.condition_number for depth in depths]),
            f"shortcuts over {n}, at zero",
        )
        for n in (1, 2)
    ]
    points = [conditions(task, sizes.depths, n, 0.01) for n in (1, 2, 3)]
    return Figure(
        name="condition_against_depth",
        title="Condition number at the start against depth",
        caption="Shortcuts over two matrices: the same at every depth. Over one: it grows in proportion to the depth. "
        "Over three: at zero itself there is no curvature to compare. Without shortcuts it grows exponentially.",
        x_label="depth (weight matrices)",
        y_label="condition number",
        marks=(*lines, *points, conditions(task, sizes.depths, 0, 1.0)),
        x_log=True,
        y_log=True,
    )


def steepest_against_depth(task: tuple[Tensor, Tensor], sizes: Sizes) -> Figure:
    """The largest |eigenvalue| beside zero: what a network learns from in its first steps."""
    moments, lines = second_moments(*task), []
    for n in (1, 2, 3):
        fitting = [depth for depth in sizes.depths if depth % n == 0]
        units = [shortcut_units(small_weights(depth, 0.01), n) for depth in fitting]
        values = [spectrum_of(linear_hessian(chain, moments)).largest_absolute for chain in units]
        lines.append(Line(numbers(fitting), numbers(values), f"shortcuts over {n}"))
    return Figure(
        name="steepest_against_depth",
        title="Steepest curvature beside zero against depth",
        caption="Shortcuts over one matrix: the steepest direction steepens with depth, and the learning rate must "
        "fall. Over three: the start is so flat that nothing moves for a long time.",
        x_label="depth (weight matrices)",
        y_label="largest |eigenvalue|",
        marks=tuple(lines),
        x_log=True,
        y_log=True,
    )


def sampled_beside_exact(task: tuple[Tensor, Tensor], sizes: Sizes) -> Figure:
    """The density of all eigenvalues of a network of 1,600 parameters, exactly and sampled."""
    task = (task[0][:200], task[1][:200])
    network = zoo.build(
        "shortcut_linear", width=10, units=sizes.units, branch_depth=2, initialisation="xavier"
    ).double()
    exact = sl.hessian_spectrum(network, task, loss="mse", method="exact")
    floor = 0.2 / (exact.parameters * exact.smoothing_width * (2 * torch.pi) ** 0.5)
    marks: list[Line | Band] = [Line(numbers(exact.grid), _drawn(exact.density, floor), "all eigenvalues")]
    for steps in sizes.steps:
        sampled = sl.hessian_spectrum(network, task, loss="mse", method="lanczos", steps=steps)
        low, high = (sampled.density + sign * 2 * sampled.density_error for sign in (-1, 1))
        name = f"8 probes, {steps} steps: ± 2 standard errors"
        marks.append(Band(numbers(sampled.grid), numbers(low.clamp_min(floor)), numbers(high.clamp_min(floor)), name))
    return Figure(
        name="sampled_beside_exact",
        title="A sampled density beside all eigenvalues",
        caption="A few steps find the outermost eigenvalues and the shape of the rest; more steps fill in the middle.",
        x_label="eigenvalue",
        y_label="density",
        marks=tuple(marks),
        y_log=True,
    )


def _drawn(values: Tensor, floor: float) -> tuple[float, ...]:
    return numbers(torch.where(values >= floor, values, torch.nan))


if __name__ == "__main__":
    from drawing import draw  # beside this script

    draw(figures(Sizes()), "curvature_", __doc__)
