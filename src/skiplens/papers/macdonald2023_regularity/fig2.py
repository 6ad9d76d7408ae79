"""Figure 2: do skips raise the singular values of Jacobians, and is training on digits faster?"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from skiplens.base.settings import option
from skiplens.papers import statistics
from skiplens.papers.macdonald2023_regularity import digits
from skiplens.papers.macdonald2023_regularity.common import figure, histogram
from skiplens.papers.macdonald2023_regularity.digits import NETWORKS, PRINTED, Digits
from skiplens.papers.statistics import Band, Readings, decide, decide_correction, exactly, over_seeds, stacked
from skiplens.papers.study import PRESETS, Item, Judgement, Preset, claim, claims
from skiplens.plots.figure import Band as figure_Band
from skiplens.plots.figure import Figure, Line, Mark, colour, numbers
from skiplens.readings.reading import Measurement
from skiplens.sweeps.run import Run
from skiplens.zoo.skips import IsometricPool, PaddedAveragePool, skip_matrix

TITLES = ("Chain", "Res", "ResAvg", "ResIso (ours)")  # of the networks in their order
HIGHER, LOWER = Band(0.0, math.inf), Band(-math.inf, 0.0)
ZERO = 1e-6  # singular values below this are zero; logarithms are taken of this instead
BLOCK_GAIN = 2.0  # by so many powers of ten at least an identity skip raises the mean logarithm of a block
FIRST_TEN, LAST = slice(0, 10), slice(-1, None)
ROUNDING = 1e-6


class Losses(Digits):
    """Training losses of all networks in several trials."""

    standardised: bool = option(True, "give the pixels mean 0 and variance 1; else they are between 0 and 1")
    trials: int = option(10, "initialisations and batches")
    iterations: int = option(20, "updates")


class Composites(Digits):
    """Jacobians from the first block's input to the logits while the paper's networks train."""

    moments: tuple[int, ...] = option(tuple(range(10)), "numbers of updates before each Jacobian")


class Starts(Digits):
    """The same before training, of the two residual networks."""

    final_norm: bool = option(True, "with the batch norm in front of the last layer")


class Parameters(Digits):
    """Jacobians of the logits in the parameters, before training."""

    standardised: bool = option(True, "give the pixels mean 0 and variance 1; else they are between 0 and 1")


class Blocks(Digits):
    """Jacobians of single blocks before training, with the statistics of batch norm frozen."""

    looked_at: int = option(4, "images whose Jacobians are taken")


def digit_losses(settings: Losses) -> dict[str, Tensor]:
    """Losses (trials, networks, iterations), before each update."""
    first, losses = settings.replicate * settings.trials, []
    for trial in range(first, first + settings.trials):
        batch = digits.batch_of(settings, trial)
        networks = (digits.network_of(settings, trial, name) for name in NETWORKS)
        descents = (digits.descent(network, batch, settings.learning_rate, settings.iterations) for network in networks)
        losses.append([list(each) for each in descents])
    return {"loss": torch.tensor(losses, dtype=torch.float64)}


def digit_composites(settings: Composites) -> dict[str, Tensor]:
    """Singular values (networks, moments, values) from the first block's input to the logits, as training goes on."""
    batch = digits.batch_of(settings, settings.replicate)
    found = []
    for network in _networks(settings, PRINTED):
        spectra, done = [], 0
        for moment in settings.moments:
            for _ in digits.descent(network, batch, settings.learning_rate, moment - done):
                pass
            done = moment
            spectra.append(digits.batch_spectrum(digits.after_stem(network), digits.stem_of(network, batch[0])))
        found.append(torch.stack(spectra))
    return {"values": torch.stack(found)}


def digit_starts(settings: Starts) -> dict[str, Tensor]:
    """Singular values (residual networks, values) to the logits before training."""
    images, _ = digits.batch_of(settings, settings.replicate)
    spectra = [
        digits.batch_spectrum(digits.after_stem(network, settings.final_norm), digits.stem_of(network, images))
        for network in _networks(settings, PRINTED[1:])
    ]
    return {"values": torch.stack(spectra)}


def digit_parameters(settings: Parameters) -> dict[str, Tensor]:
    """Singular values (networks, values) of DF, the derivative of the logits with respect to the parameters."""
    images, _ = digits.batch_of(settings, settings.replicate)
    spectra = [digits.parameter_spectrum(network, images) for network in _networks(settings, PRINTED)]
    return {"values": torch.stack(spectra)}


def digit_blocks(settings: Blocks) -> dict[str, Tensor]:
    """Singular values (networks, values) of block 1, and of block 2 behind its first ReLU, before training."""
    images, _ = digits.batch_of(settings, settings.replicate)
    found: dict[str, list[Tensor]] = {"block1": [], "block2": []}
    for network in _networks(settings, NETWORKS):
        block1, activation, block2 = map(network.get_submodule, ("block1", "block2.preactivation", "block2.residual"))
        stem = digits.stem_of(network, images)
        if len(found["block1"]) < 2:  # the pools are in block 2
            found["block1"].append(digits.image_spectrum(block1, stem, settings.looked_at))
        with torch.no_grad():
            found["block2"].append(digits.image_spectrum(block2, activation(block1(stem)), settings.looked_at))
    return {name: torch.stack(spectra) for name, spectra in found.items()}


def _networks(settings: Digits, names: Sequence[str]) -> Iterator[nn.Module]:
    """The networks of the one trial of a run."""
    return (digits.network_of(settings, settings.replicate, name) for name in names)


def mean_log(values: Tensor) -> Tensor:
    """Mean of log₁₀ of the singular values."""
    return values.double().clamp_min(ZERO).log10().mean(-1)


def median(values: Tensor) -> Tensor:
    """Median of the singular values."""
    return values.double().quantile(0.5, dim=-1)


@claim("Section 6.2, Hypothesis 6.1", f"above 0; we ask for ≥ {BLOCK_GAIN:g}")
def _block1(readings: Readings) -> Judgement:
    """Distributions are shifted upwards as deterministic skip connections are added: the identity around block 1."""
    gain = mean_log(stacked(readings, "block1", "digit_blocks")).diff(dim=1)[:, 0]
    sentence = (
        f"Mean log₁₀ σ of block 1 (zeros as {ZERO:g}) with the identity skip minus that without; we ask for at "
        f"least {BLOCK_GAIN:g} powers of ten."
    )
    return decide(over_seeds(gain), Band(BLOCK_GAIN, math.inf), sentence)


def _judge_block2(readings: Readings, place: int) -> Judgement:
    """Median of block 2 of the network at this place minus that of the one before."""
    medians = median(stacked(readings, "block2", "digit_blocks"))
    sentence = f"Median σ of block 2 behind its first ReLU, {TITLES[place]} minus {TITLES[place - 1]}."
    return decide(over_seeds(medians[:, place] - medians[:, place - 1]), HIGHER, sentence)


@claim("Figure 2a-c", "both above 0")
def _composite(readings: Readings) -> Judgement:
    """Distributions are shifted upwards as deterministic skip connections are added: to the logits."""
    medians = median(stacked(readings, "values", "digit_composites")).mean(2)
    sentence = (
        "Median σ from block 1 to the logits, mean over the iterations looked at among the first ten: Res minus Chain, "
        f"ResAvg minus Res; means over trials {_listed(medians.mean(0))}."
    )
    return decide(over_seeds(medians.diff(dim=1)), HIGHER, sentence)


@claim("Section 6.1", "above 0")
def _composite_at_start(readings: Readings) -> Judgement:
    """Distributions are shifted upwards as deterministic skip connections are added: to the logits, before training."""
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


@claim("Section 6.1", "both above 0")
def _parameters(readings: Readings) -> Judgement:
    """The singular values of DF are shifted upwards too."""
    means = mean_log(stacked(readings, "values", "digit_parameters"))
    sentence = (
        "Mean log₁₀ σ of the derivative DF in the parameters before training: Res minus Chain, ResAvg minus Res; means "
        f"over trials {_listed(means.mean(0))}. The derivative goes through the last batch norm, which divides by "
        "the scale."
    )
    return decide(over_seeds(means.diff(dim=1)), HIGHER, sentence)


def _judge_loss(readings: Readings, place: int, iterations: slice) -> Judgement:
    """Losses of the network at this place minus those of the one before, within trials."""
    losses = stacked(readings, "loss", "digit_losses").flatten(0, 1)[:, :, iterations].mean(2)
    difference = losses[:, place] - losses[:, place - 1]
    when = "mean of iterations 0 to 9" if iterations == FIRST_TEN else "at the last iteration shown"
    sentence = (
        f"Loss, {when}: {TITLES[place]} minus {TITLES[place - 1]}, the same weights and images; lower in "
        f"{int((difference < 0).sum())} of {len(difference)} trials."
    )
    return decide(over_seeds(difference), LOWER, sentence)


@claim("Section 6.2, Eq. 15", "1")
def _pool(readings: Readings) -> Judgement:
    """The average pool is rescaled to have all singular values equal to 1."""
    pools = (PaddedAveragePool(3, 15), IsometricPool(3, 5, 20))
    in_front = (5, 12, 12)  # channels and pixels in front of the second block's shortcut
    padded, isometric = (torch.linalg.svdvals(skip_matrix(pool.double(), in_front)) for pool in pools)
    zeros = int((padded < ROUNDING).sum())
    sentence = (
        f"Smallest singular value of the pool. Printed: all are 1. With zero channels, as it was run, {zeros} of "
        f"{len(padded)} are 0. Right: a pool with orthonormal filters has them all at 1 (shown)."
    )
    band = Band.around(1.0, ROUNDING)
    return decide_correction((exactly(padded.min()), band), (exactly(isometric.min()), band), sentence)


def _listed(values: Tensor) -> str:
    return ", ".join(f"{value:.3f}" for value in values.tolist())


_UPWARDS = "Distributions are shifted upwards as deterministic skip connections are added: {} around block 2."
_SHORTCUTS = {
    "projection": "a 1×1 convolution",
    "average_pool": "an average pool added",
    "isometric_pool": "a pool with all singular values 1 in place of it (ours)",
}
_BLOCK2 = claims(
    _judge_block2,
    *(
        (f"block2_{name}", _UPWARDS.format(what), "Section 6.2, Hypothesis 6.1", "above 0", place)
        for place, (name, what) in enumerate(_SHORTCUTS.items(), start=1)
    ),
)
_INITIALLY = "Skips improve convergence speed at least initially."
_POOL = "An average pool in the skip results in faster convergence."
_LOSSES = claims(
    _judge_loss,
    ("loss_residual", _INITIALLY, "Figure 2d, Hypothesis 6.1", "below 0", 1, FIRST_TEN),
    ("loss_residual_later", "Skips result in faster convergence.", "Figure 2d", "below 0", 1, LAST),
    ("loss_average_pool", _POOL, "Figure 2d", "below 0", 2, LAST),
)
CLAIMS = (_block1, *_BLOCK2, _composite, _composite_at_start, _parameters, *_LOSSES, _pool)

LARGEST, BINS = 6.0, 32  # the paper's axis


def draw(readings: Readings) -> tuple[Figure, ...]:
    """Panels (a) to (c) as one figure, (d), and three figures that explain them."""
    half_zero = "Without the identity skip half of the singular values are zero (shown at −6); with it none is."
    upwards = "Each skip moves the singular values upwards, the pool with all singular values 1 most of all."
    return (
        _draw_composites(readings),
        _draw_losses(readings),
        _draw_blocks(readings, ("block1", "Block 1 before training"), half_zero, -6.2),
        _draw_blocks(readings, ("block2", "Block 2 before training, behind its first ReLU"), upwards, -3.0),
        _draw_without_norm(readings),
    )


def _draw_composites(readings: Readings) -> Figure:
    values = stacked(readings, "values", "digit_composites").mean(2)  # sorted values, averaged as in the paper
    marks = _histograms(values, torch.linspace(0, LARGEST, BINS + 1, dtype=torch.float64))
    caption = (
        f"Sorted singular values from block 1 to the logits, averaged over the iterations looked at, on "
        f"{readings[0].setting('images')} images; histograms are means over trials with standard errors. The paper "
        "sees them shifted upwards from Chain to Res to ResAvg."
    )
    words = "composites", "Figure 2a-c: Jacobians to the logits, first ten iterations"
    return figure(words, caption, ("singular value", "density"), marks)


def _draw_losses(readings: Readings) -> Figure:
    losses = stacked(readings, "loss", "digit_losses").flatten(0, 1)
    iterations = numbers(range(losses.shape[2]))
    marks: list[Mark] = []
    for place, title in enumerate(TITLES):
        mean, error = losses[:, place].mean(0), losses[:, place].std(0) / len(losses) ** 0.5
        marks += [
            figure_Band(iterations, numbers(mean - error), numbers(mean + error), colour=colour(place)),
            Line(iterations, numbers(mean), title, place == 3, colour(place)),  # ours is dashed
        ]
    caption = (
        f"Gradient descent on {readings[0].setting('images')} digits, means over {len(losses)} trials with standard "
        "errors."
    )
    return figure(("losses", "Figure 2d: training loss"), caption, ("iteration", "cross-entropy"), marks, "y")


def _draw_without_norm(readings: Readings) -> Figure:
    edges = torch.linspace(0, 2 * LARGEST, BINS + 1, dtype=torch.float64)
    marks: list[Mark] = []
    for place, title in enumerate(TITLES[1:3]):
        for final_norm, word in ((True, "with"), (False, "without")):
            values = stacked(readings, "values", "digit_starts", final_norm=final_norm)[:, place]
            marks += histogram(values, edges, f"{title}, {word} the last batch norm", colour(2 * place + final_norm))
    caption = (
        "Without the last batch norm the average pool moves the singular values upwards, as predicted; with it, it "
        "moves them downwards, since the batch norm divides by the larger scale."
    )
    words = "last_norm", "Jacobians to the logits before training"
    return figure(words, caption, ("singular value", "density"), marks)


def _draw_blocks(readings: Readings, words: tuple[str, str], caption: str, lowest: float) -> Figure:
    """Logarithms of the singular values, from `lowest` to 1, of the block that the figure is named after."""
    values = stacked(readings, words[0], "digit_blocks").double().clamp_min(ZERO).log10()
    marks = _histograms(values, torch.linspace(lowest, 1.0, 2 * BINS + 1, dtype=torch.float64))
    caption = f"{caption} Means over trials with standard errors."
    return figure(words, caption, ("log₁₀ of the singular value", "density"), marks)


def _histograms(values: Tensor, edges: Tensor) -> list[Mark]:
    """Those of values (trials, networks, values), a colour for each network."""
    drawn = (histogram(values[:, i], edges, TITLES[i], colour(i)) for i in range(values.shape[1]))
    return [mark for marks in drawn for mark in marks]


def summary(values: Tensor) -> dict[str, float | int]:
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
        for trial, losses in enumerate(reading["loss"].tolist()):
            for name, row in zip(NETWORKS, losses, strict=True):
                yield {"trial": trial, "network": name, **{f"loss_{t}": loss for t, loss in enumerate(row)}}
    elif measure == "digit_composites":
        for name, spectra in zip(PRINTED, reading["values"], strict=True):
            for moment, values in zip(reading.setting("moments"), spectra, strict=True):
                yield {"network": name, "iteration": moment, **summary(values)}
    else:
        names = PRINTED[1:] if measure == "digit_starts" else NETWORKS
        for array, spectra in reading.arrays.items():
            for name, values in zip(names, spectra, strict=False):
                yield {"of": array, "network": name, **summary(values)}


def runs(preset: Preset, seed: int) -> list[Run]:
    """Losses, Jacobians to the logits in training and before it, in the parameters, and of blocks."""
    place = PRESETS.index(preset)  # where three numbers stand, they are those of smoke, laptop and paper
    trials, moments = (3, 10, 10)[place], ((0, 9), (0, 5, 9), tuple(range(10)))[place]
    planned: tuple[tuple[statistics.Measure, Digits, tuple[int, int, int], float], ...] = (
        (digit_losses, Losses(trials=trials), (1, 8, 100), 6.0),
        (digit_composites, Composites(moments=moments), (2, 5, 150), 7.0),
        (digit_starts, Starts(), (2, 24, 100), 1.5),
        (digit_starts, Starts(final_norm=False), (2, 16, 60), 1.5),
        (digit_parameters, Parameters(), (2, 12, 60), 3.5),
        (digit_blocks, Blocks(), (2, 12, 60), 2.0),
    )
    found = []
    for measure, base, counts, seconds in planned:
        settings = replace(base, images=(8, 32, 32)[place], source="mnist" if preset == "paper" else "sample")
        of_kind = statistics.replicated(measure, settings, counts[place], seed)
        found += [replace(run, cost=seconds) for run in of_kind]
    return found


_TITLE = "MNIST: Jacobian singular values and loss without skips, with skips, with an average pool"
_DEVIATIONS = (
    "Networks have the five convolutions of the authors' public script (the paper says six).",
    "Histograms are of raw pixels as in that script (the paper's axis fits only these), losses and DF of standardised "
    "pixels as in the text.",
    "Every trial has images and weights of its own; smoke and laptop draw the images from the first 2,000 of MNIST, "
    "which come with the package. Smoke has 8 images, not 32.",
    "Laptop looks at iterations 0, 5 and 9 of the first ten, in 5 trials: too few to decide that claim.",
    "Single blocks are looked at with the statistics of batch norm frozen, and on 4 images of the batch.",
)
ITEM = Item("fig2", _TITLE, runs, CLAIMS, draw, partial(statistics.raw_tables, rows=_rows), _DEVIATIONS)
