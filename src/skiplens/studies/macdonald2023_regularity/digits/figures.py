"""Figure 2: histograms of singular values, losses; and the blocks behind them."""

from collections.abc import Sequence

import torch

from skiplens.core.axes import Tensor
from skiplens.figures import Figure
from skiplens.figures.figure import Band, Line, Mark, numbers
from skiplens.figures.style import colour
from skiplens.readings import Measurement
from skiplens.studies.macdonald2023_regularity.digits.claims import ZERO, batch_images
from skiplens.studies.macdonald2023_regularity.digits.settings import NETWORKS, PRINTED, TITLES
from skiplens.studies.macdonald2023_regularity.histograms import histogram
from skiplens.studies.selection import stacked

LARGEST, BINS = 6.0, 32
"""The paper's axis."""


def fig2(readings: Sequence[Measurement]) -> tuple[Figure, ...]:
    """Panels (a) to (c) as one figure, (d), and three figures that explain them."""
    return _composites(readings), _losses(readings), _block1(readings), _block2(readings), _without_norm(readings)


def _composites(readings: Sequence[Measurement]) -> Figure:
    values = stacked(readings, "values", "digit_composites").mean(2)  # sorted values, averaged as in the paper
    edges = torch.linspace(0, LARGEST, BINS + 1, dtype=torch.float64)
    marks = [
        mark
        for place, name in enumerate(PRINTED)
        for mark in histogram(values[:, place], edges, TITLES[name], colour(place))
    ]
    return _figure(
        ("composites", "Figure 2a-c: Jacobians to the logits, first ten iterations"),
        f"Sorted singular values from block 1 to the logits, averaged over the iterations looked at, on "
        f"{batch_images(readings)} images; histograms are means over trials with standard errors. The paper sees them "
        "shifted upwards from Chain to Res to ResAvg.",
        ("singular value", "density"),
        marks,
    )


def _losses(readings: Sequence[Measurement]) -> Figure:
    losses = stacked(readings, "loss", "digit_losses").flatten(0, 1)
    iterations = numbers(torch.arange(losses.shape[2], dtype=torch.float64))
    marks: list[Mark] = []
    for place, name in enumerate(NETWORKS):
        mean, error = losses[:, place].mean(0), losses[:, place].std(0) / len(losses) ** 0.5
        shade = colour(place)
        marks += [
            Band(iterations, numbers(mean - error), numbers(mean + error), colour=shade),
            Line(iterations, numbers(mean), TITLES[name], name == NETWORKS[3], shade),
        ]
    return _figure(
        ("losses", "Figure 2d: training loss"),
        f"Gradient descent on {batch_images(readings)} digits, means over {len(losses)} trials with standard errors.",
        ("iteration", "cross-entropy"),
        marks,
        log=True,
    )


def _block1(readings: Sequence[Measurement]) -> Figure:
    return _logarithms(
        stacked(readings, "block1", "digit_blocks"),
        ("block1", "Block 1 before training"),
        "Without the identity skip half of the singular values are zero (shown at −6); with it none is.",
    )


def _block2(readings: Sequence[Measurement]) -> Figure:
    return _logarithms(
        stacked(readings, "block2", "digit_blocks"),
        ("block2", "Block 2 before training, behind its first ReLU"),
        "Each skip moves the singular values upwards, the pool with all singular values 1 most of all.",
        (-3.0, 1.0),
    )


def _without_norm(readings: Sequence[Measurement]) -> Figure:
    edges = torch.linspace(0, 2 * LARGEST, BINS + 1, dtype=torch.float64)
    marks: list[Mark] = []
    for place, name in enumerate(PRINTED[1:]):
        for final_norm in (True, False):
            values = stacked(readings, "values", "digit_starts", final_norm=final_norm)[:, place]
            title = f"{TITLES[name]}, {'with' if final_norm else 'without'} the last batch norm"
            marks += histogram(values, edges, title, colour(2 * place + final_norm))
    return _figure(
        ("last_norm", "Jacobians to the logits before training"),
        "Without the last batch norm the average pool moves the singular values upwards, as predicted; with it, it "
        "moves them downwards, since the batch norm divides by the larger scale.",
        ("singular value", "density"),
        marks,
    )


def _logarithms(
    values: Tensor, words: tuple[str, str], caption: str, limits: tuple[float, float] = (-6.2, 1.0)
) -> Figure:
    edges = torch.linspace(*limits, 2 * BINS + 1, dtype=torch.float64)
    logarithms = values.double().clamp_min(ZERO).log10()
    marks = [
        mark
        for place in range(values.shape[1])
        for mark in histogram(logarithms[:, place], edges, TITLES[NETWORKS[place]], colour(place))
    ]
    return _figure(
        words, f"{caption} Means over trials with standard errors.", ("log₁₀ of the singular value", "density"), marks
    )


def _figure(
    words: tuple[str, str], caption: str, labels: tuple[str, str], marks: Sequence[Mark], log: bool = False
) -> Figure:
    name, title = words
    return Figure(name, title, caption, *labels, tuple(marks), y_log=log)
