"""Figure 2: do skips raise the singular values of Jacobians, and is training faster?"""

import math
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor

from skiplens.papers.macdonald2023_regularity.common import histogram
from skiplens.papers.macdonald2023_regularity.digits import NETWORKS, PRINTED, TITLES, fig2_runs
from skiplens.papers.statistics import Band, chosen, decide, decide_correction, exactly, over_seeds, raw_tables, stacked
from skiplens.papers.study import Claim, Item, Judgement, Table
from skiplens.plots.figure import Band as figure_Band
from skiplens.plots.figure import Figure, Line, Mark, colour, numbers
from skiplens.readings.reading import Measurement
from skiplens.zoo.skips import IsometricPool, PaddedAveragePool, skip_matrix

HIGHER, LOWER = Band(0.0, math.inf), Band(-math.inf, 0.0)

ZERO = 1e-6
"""Singular values below this are zero; logarithms are taken of this instead."""

BLOCK_GAIN = 2.0
"""By so many powers of ten at least an identity skip raises the mean logarithm of a block."""

FIRST_TEN = slice(0, 10)

LAST = slice(-1, None)

ROUNDING = 1e-6

POOLED = (5, 12, 12)
"""Channels and pixels in front of the second block's shortcut."""


def mean_log(values: Tensor) -> Tensor:
    """Mean of log₁₀ of the singular values."""
    return values.double().clamp_min(ZERO).log10().mean(-1)


def median(values: Tensor) -> Tensor:
    """Median of the singular values."""
    return values.double().quantile(0.5, dim=-1)


def judge_block1(readings: Sequence[Measurement]) -> Judgement:
    """Mean logarithm of block 1 with its identity skip minus that without."""
    gain = mean_log(stacked(readings, "block1", "digit_blocks")).diff(dim=1)[:, 0]
    sentence = (
        f"Mean log₁₀ σ of block 1 (zeros as {ZERO:g}) with the identity skip minus that without; we ask for at "
        f"least {BLOCK_GAIN:g} powers of ten."
    )
    return decide(over_seeds(gain), Band(BLOCK_GAIN, math.inf), sentence)


def judge_block2(readings: Sequence[Measurement], network: str) -> Judgement:
    """Median of block 2 of a network minus that of the one before."""
    place = NETWORKS.index(network)
    medians = median(stacked(readings, "block2", "digit_blocks"))
    sentence = f"Median σ of block 2 behind its first ReLU, {TITLES[network]} minus {TITLES[NETWORKS[place - 1]]}."
    return decide(over_seeds(medians[:, place] - medians[:, place - 1]), HIGHER, sentence)


def judge_composite(readings: Sequence[Measurement]) -> Judgement:
    """Medians to the logits, averaged over the iterations that were looked at."""
    medians = median(stacked(readings, "values", "digit_composites")).mean(2)
    sentence = (
        "Median σ from block 1 to the logits, mean over the iterations looked at among the first ten: Res minus Chain, "
        f"ResAvg minus Res; means over trials {_listed(medians.mean(0))}."
    )
    return decide(over_seeds(medians.diff(dim=1)), HIGHER, sentence)


def judge_start(readings: Sequence[Measurement]) -> Judgement:
    """Medians to the logits before training, with the last batch norm and without it."""
    with_norm, without = (
        median(stacked(readings, "values", "digit_starts", final_norm=final_norm)).diff(dim=1)[:, 0]
        for final_norm in (True, False)
    )
    sentence = (
        "Median σ from block 1 to the logits before training, ResAvg minus Res. Printed: above 0; it is "
        f"{with_norm.mean():.3f}, since the last batch norm divides by the larger scale. Right: the pool raises what "
        "comes before it; without that batch norm the difference is the number shown."
    )
    return decide_correction((over_seeds(with_norm), HIGHER), (over_seeds(without), HIGHER), sentence)


def judge_parameters(readings: Sequence[Measurement]) -> Judgement:
    """Mean logarithms of DF."""
    means = mean_log(stacked(readings, "values", "digit_parameters"))
    sentence = (
        "Mean log₁₀ σ of the derivative DF in the parameters before training: Res minus Chain, ResAvg minus Res; means "
        f"over trials {_listed(means.mean(0))}. The derivative goes through the last batch norm, which divides by "
        "the scale."
    )
    return decide(over_seeds(means.diff(dim=1)), HIGHER, sentence)


def judge_loss(readings: Sequence[Measurement], network: str, iterations: slice) -> Judgement:
    """Losses of a network minus those of the one before, over the mean of the latter."""
    place = NETWORKS.index(network)
    losses = stacked(readings, "loss", "digit_losses").flatten(0, 1)[:, :, iterations].mean(2)
    difference = losses[:, place] - losses[:, place - 1]
    when = "mean of iterations 0 to 9" if iterations == FIRST_TEN else "at the last iteration shown"
    sentence = (
        f"Loss, {when}: {TITLES[network]} minus {TITLES[NETWORKS[place - 1]]}, the same weights and images; lower in "
        f"{int((difference < 0).sum())} of {len(difference)} trials."
    )
    return decide(over_seeds(difference), LOWER, sentence)


def judge_pool(readings: Sequence[Measurement]) -> Judgement:
    """The smallest singular values of both pools."""
    padded, isometric = (
        torch.linalg.svdvals(skip_matrix(pool.double(), POOLED))
        for pool in (PaddedAveragePool(3, 15), IsometricPool(3, 5, 20))
    )
    zeros = int((padded < ROUNDING).sum())
    sentence = (
        f"Smallest singular value of the pool. Printed: all are 1. With zero channels, as it was run, {zeros} of "
        f"{len(padded)} are 0. Right: a pool with orthonormal filters has them all at 1 (shown)."
    )
    band = Band.around(1.0, ROUNDING)
    return decide_correction((exactly(padded.min()), band), (exactly(isometric.min()), band), sentence)


def batch_images(readings: Sequence[Measurement]) -> int:
    """How many images a batch has."""
    return chosen(readings, "digit_losses")[0].setting("images")


def _listed(values: Tensor) -> str:
    return ", ".join(f"{value:.3f}" for value in values.tolist())


_SHIFT = "Distributions are shifted upwards as deterministic skip connections are added"

CLAIMS = (
    Claim(
        "block1",
        f"{_SHIFT}: the identity around block 1.",
        "Section 6.2, Hypothesis 6.1",
        f"above 0; we ask for ≥ {BLOCK_GAIN:g}",
        judge_block1,
    ),
    *(
        Claim(
            f"block2_{name}",
            f"{_SHIFT}: {what} around block 2.",
            "Section 6.2, Hypothesis 6.1",
            "above 0",
            partial(judge_block2, network=network),
        )
        for name, what, network in (
            ("projection", "a 1×1 convolution", "mnist_residual"),
            ("average_pool", "an average pool added", "mnist_residual_avgpool"),
            ("isometric_pool", "a pool with all singular values 1 in place of it (ours)", "mnist_residual_isopool"),
        )
    ),
    Claim("composite", f"{_SHIFT}: to the logits.", "Figure 2a-c", "both above 0", judge_composite),
    Claim("composite_at_start", f"{_SHIFT}: to the logits, before training.", "Section 6.1", "above 0", judge_start),
    Claim(
        "parameters",
        "The singular values of DF are shifted upwards too.",
        "Section 6.1",
        "both above 0",
        judge_parameters,
    ),
    Claim(
        "loss_residual",
        "Skips improve convergence speed at least initially.",
        "Figure 2d, Hypothesis 6.1",
        "below 0",
        partial(judge_loss, network="mnist_residual", iterations=FIRST_TEN),
    ),
    Claim(
        "loss_residual_later",
        "Skips result in faster convergence.",
        "Figure 2d",
        "below 0",
        partial(judge_loss, network="mnist_residual", iterations=LAST),
    ),
    Claim(
        "loss_average_pool",
        "An average pool in the skip results in faster convergence.",
        "Figure 2d",
        "below 0",
        partial(judge_loss, network="mnist_residual_avgpool", iterations=LAST),
    ),
    Claim(
        "pool",
        "The average pool is rescaled to have all singular values equal to 1.",
        "Section 6.2, Eq. 15",
        "1",
        judge_pool,
    ),
)

LARGEST, BINS = 6.0, 32
"""The paper's axis."""


def draw_fig2(readings: Sequence[Measurement]) -> tuple[Figure, ...]:
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
            figure_Band(iterations, numbers(mean - error), numbers(mean + error), colour=shade),
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


def tables(readings: Sequence[Measurement]) -> tuple[Table, ...]:
    """One table for each measure."""
    return raw_tables(readings, _rows)


def statistics(values: Tensor) -> dict[str, float]:
    """What is reported of every spectrum."""
    return {
        "count": len(values),
        "min": float(values.min()),
        "max": float(values.max()),
        "median": float(median(values)),
        "rms": float(values.double().square().mean().sqrt()),
        "mean_log10": float(mean_log(values)),
        "above_1": float((values > 1).double().mean()),
        "zero": float((values < ZERO).double().mean()),
        "at_1": float(((values - 1).abs() < ZERO).double().mean()),
    }


def _rows(reading: Measurement) -> Iterator[dict[str, Any]]:
    measure = reading.name.rpartition(":")[2]
    if measure == "digit_losses":
        yield from _loss_rows(reading["loss"])
    elif measure == "digit_composites":
        yield from _moment_rows(reading)
    else:
        names = PRINTED[1:] if measure == "digit_starts" else NETWORKS
        for array, spectra in reading.arrays.items():
            for name, values in zip(names, spectra, strict=False):
                yield {"of": array, "network": name, **statistics(values)}


def _loss_rows(losses: Tensor) -> Iterator[dict[str, Any]]:
    for trial, rows in enumerate(losses):
        for name, row in zip(NETWORKS, rows, strict=True):
            yield {"trial": trial, "network": name, **{f"loss_{t}": loss for t, loss in enumerate(row.tolist())}}


def _moment_rows(reading: Measurement) -> Iterator[dict[str, Any]]:
    for name, spectra in zip(PRINTED, reading["values"], strict=True):
        for moment, values in zip(reading.setting("moments"), spectra, strict=True):
            yield {"network": name, "iteration": moment, **statistics(values)}


ITEMS = (
    Item(
        "fig2",
        "MNIST: Jacobian singular values and loss without skips, with skips, with an average pool",
        fig2_runs,
        CLAIMS,
        draw_fig2,
        tables,
        (
            "Networks have the five convolutions of the authors' public script (the paper says six).",
            "Histograms are of raw pixels as in that script (the paper's axis fits only these), losses and DF of "
            "standardised pixels as in the text.",
            "Every trial has images and weights of its own; smoke and laptop draw the images from the first 2,000 of "
            "MNIST, which come with the package. Smoke has 8 images, not 32.",
            "Laptop looks at iterations 0, 5 and 9 of the first ten, in 5 trials: too few to decide that claim.",
            "Single blocks are looked at with the statistics of batch norm frozen, and on 4 images of the batch.",
        ),
    ),
)
