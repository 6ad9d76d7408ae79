"""Figures 5 and 6: the Hessian of linear networks while they are trained, against the loss they have come to."""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cache, wraps

import torch
from torch import Tensor

from skiplens.base import Float, option
from skiplens.papers import statistics
from skiplens.papers.li2016_shortcuts import common
from skiplens.papers.li2016_shortcuts.common import FamilyName, Source
from skiplens.papers.li2016_shortcuts.hessian import count_negative, linear_hessian, spectrum_of
from skiplens.papers.statistics import Band, Readings, chosen, decide, decide_correction, over_seeds, stacked, values
from skiplens.papers.study import Claim, Item, Judge, Judgement, Preset, claim
from skiplens.plots.figure import Figure, Line, Mark, numbers
from skiplens.sweeps.run import Run
from skiplens.training.batched import BatchedPlan, ManyRuns, Units, train_linear_networks


class Training(statistics.ReplicateSettings):
    """Gradient descent of a linear network on all digits."""

    family: FamilyName = option("2-shortcut", "initialisation and shortcuts")
    depth: int = option(16, "weight matrices (D)")
    learning_rate: float = option(0.1, "of gradient descent")
    epochs: int = option(1000, "updates, each with all samples")
    source: Source = option("mnist", "digits: the embedded ones or all of MNIST")


class SpectraAtLosses(Training):
    """The Hessian's spectrum where the loss first falls to given values."""

    losses: tuple[float, ...] = option((), "losses at which the spectrum is taken, descending")


class Descent(Training):
    """Loss, gradient and index in the first epochs."""

    epochs: int = option(80, "updates, each with all samples")
    every: int = option(2, "epochs between two looks")


@dataclass(frozen=True)
class Sizes:
    """How large the runs of one preset are."""

    replicates: int  # runs of each kind of network
    crossing_replicates: int  # runs of 2-shortcut and of orthogonal networks where their condition numbers meet
    depth: int  # 16 in the paper
    losses: tuple[float, ...]  # at which spectra of 2-shortcut and of orthogonal networks are taken
    crossing_losses: tuple[float, ...]  # where they meet
    end_losses: tuple[float, ...]  # the last ones
    one_shortcut_losses: tuple[float, ...]
    xavier_losses: tuple[float, ...]  # they start below the larger losses and hardly get to the smallest
    slow_epochs: int = 3000  # at the lowest learning rate; the others have 1,000
    source: Source = "mnist"


_LOSSES = (4.5, 4.0, 3.0, 2.0, 1.5, 1.0, 0.7, 0.5, 0.45)
_CROSSING, _END = (0.4,), (0.36, 0.345)
_ALL = _LOSSES + _CROSSING + _END

SIZES: dict[Preset, Sizes] = {
    "smoke": Sizes(3, 3, 6, (4.5, 3.0, 2.0), (1.0,), (0.5,), (2.0, 1.0), (0.5,), slow_epochs=800, source="sample"),
    "laptop": Sizes(10, 30, 16, _LOSSES, _CROSSING, _END, (4.5, 3.0, 2.0, 1.0, 0.5), (0.7, 0.5, 0.45)),
    "paper": Sizes(20, 50, 16, _LOSSES, _CROSSING, _END, _ALL, _ALL),
}

# Curves against the loss hardly depend on them, as long as the descent is stable.
LEARNING_RATES: dict[FamilyName, float] = {
    "xavier": 10**-1.75,
    "orthogonal": 0.01,
    "1-shortcut": 0.01,
    "2-shortcut": 0.1,
}


def fig5_runs(preset: Preset, seed: int) -> list[Run]:
    """Spectra at losses: figure 5, and the left half of figure 6."""
    sizes = SIZES[preset]
    own = {"xavier": [sizes.xavier_losses], "1-shortcut": [sizes.one_shortcut_losses]}
    runs: list[Run] = []
    for family, rate in LEARNING_RATES.items():
        epochs = sizes.slow_epochs if rate == 0.01 else 1000
        for losses in own.get(family, [sizes.losses, sizes.crossing_losses, sizes.end_losses]):
            base = SpectraAtLosses(family=family, depth=sizes.depth, source=sizes.source, losses=losses)
            base = replace(base, learning_rate=rate, epochs=epochs)
            count = sizes.crossing_replicates if losses == sizes.crossing_losses else sizes.replicates
            runs += statistics.replicated(spectra_at_losses, base, count, seed, lambda own: len(own.losses) / 10)
    return runs


def fig6_runs(preset: Preset, seed: int) -> list[Run]:
    """Those of figure 5, and the first epochs of 2-shortcut networks: the right half of figure 6."""
    sizes = SIZES[preset]
    base = Descent(depth=sizes.depth, source=sizes.source)
    return [*fig5_runs(preset, seed), *statistics.replicated(descent, base, sizes.replicates, seed, 0.4)]


def spectra_at_losses(settings: SpectraAtLosses) -> dict[str, Tensor]:
    """The spectrum's numbers where the loss first falls to each value, interpolated linearly in the loss."""
    run = _trained(settings, tuple(range(settings.epochs + 1)))

    @cache
    def quantities(epoch: int) -> Tensor:
        spectrum = spectrum_of(_hessian(settings, run.weights_at(epoch)[0]))
        tenth = spectrum.absolute_quantile(0.1)
        found = (spectrum.largest_absolute, tenth, spectrum.condition_number, spectrum.index)
        return torch.tensor(found, dtype=torch.float64)

    rows = torch.stack([at_loss(run.loss_history[:, 0], loss, quantities) for loss in settings.losses])
    named = dict(zip(("largest", "tenth", "condition_number", "index"), rows.unbind(1), strict=True))
    return {"loss": torch.tensor(settings.losses, dtype=torch.float64), **named}


def descent(settings: Descent) -> dict[str, Tensor]:
    """Loss, norm of the gradient and index every few epochs."""
    epochs = tuple(range(0, settings.epochs + 1, settings.every))
    run = _trained(settings, epochs)
    counts = [count_negative(_hessian(settings, run.weights_at(epoch)[0])) for epoch in epochs]
    return {
        "epoch": torch.tensor(epochs),
        "loss": run.loss_history[:, 0],
        "gradient_norm": run.gradient_norm_history[:, 0],
        "index": torch.tensor(counts, dtype=torch.float64) / run.weights[0].numel(),
    }


def at_loss(
    losses: Float[Tensor, " epochs"], wanted: float, quantities: Callable[[int], Float[Tensor, " quantities"]]
) -> Float[Tensor, " quantities"]:
    """The quantities where the loss first falls to `wanted`, between the two epochs; NaN if it never does."""
    reached = (losses <= wanted).nonzero().flatten()
    if not len(reached) or int(reached[0]) == 0:
        return torch.full_like(quantities(0), torch.nan)
    after = int(reached[0])
    share = (losses[after - 1] - wanted) / (losses[after - 1] - losses[after])
    return torch.lerp(quantities(after - 1), quantities(after), share)


def _trained(settings: Training, epochs: tuple[int, ...]) -> ManyRuns:
    family = common.FAMILIES[settings.family]
    starts = family.start(settings.depth, settings.stream())[None]
    return train_linear_networks(
        starts,
        torch.tensor([settings.learning_rate], dtype=torch.float64),
        common.digit_moments(settings.source),
        BatchedPlan(settings.epochs, record_at=epochs, snapshots_at=epochs),
        Units(family.branch_depth, family.shortcut),
    )


def _hessian(settings: Training, weights: Tensor) -> Tensor:
    return linear_hessian(common.FAMILIES[settings.family].units(weights), common.digit_moments(settings.source))


def by_loss(readings: Readings, family: str, quantity: str) -> dict[float, Float[Tensor, " replicates"]]:
    """The quantity of the runs of this family at each loss, descending; there are more runs at some losses."""
    columns: dict[float, list[Tensor]] = {}
    for reading in chosen(readings, spectra_at_losses, family=family):
        for loss, value in zip(reading["loss"].tolist(), reading[quantity], strict=True):
            columns.setdefault(loss, []).append(value)
    return {loss: torch.stack(columns[loss]).double() for loss in sorted(columns, reverse=True)}


def at_losses(readings: Readings, family: str, quantity: str) -> tuple[list[float], Float[Tensor, "replicates losses"]]:
    """The losses, and the quantity (replicates, losses); NaN where there are fewer replicates."""
    columns = by_loss(readings, family, quantity)
    rows = max(len(column) for column in columns.values())
    padded = [torch.nn.functional.pad(column, (0, rows - len(column)), value=math.nan) for column in columns.values()]
    return list(columns), torch.stack(padded, dim=1)


def over_losses(columns: Mapping[float, Tensor]) -> statistics.Interval:
    """Intervals of the means at each loss, holding together; each loss has its own number of runs."""
    found = [over_seeds(column, comparisons=len(columns)) for column in columns.values()]
    half_widths = torch.stack([one.half_width for one in found])
    return statistics.Interval(torch.stack([one.value for one in found]), half_widths)


SMALL = 0.4  # the loss from which the corrected "always" holds
NEARLY, END = 0.45, 0.345  # not far from the end, and the last loss looked at; the lowest of a linear network is 0.337


def _claim(printed_at: str, paper: str) -> Callable[[Judge], Claim]:
    """As `claim`, but networks of another depth than the paper's are not judged."""

    def of_judge(judge: Judge) -> Claim:
        @wraps(judge)
        def judged(readings: Readings) -> Judgement:
            depths = values(readings, "depth")
            if depths == [16]:
                return judge(readings)
            explanation = f"The claim is about networks with 16 matrices; these have {depths[0]}. Use a larger preset."
            return Judgement("not attempted", explanation=explanation)

        return claim(printed_at, paper)(judged)

    return of_judge


def log_gaps(
    readings: Readings, least: float = 0.0, families: tuple[str, str] = ("orthogonal", "2-shortcut")
) -> dict[float, Tensor]:
    """log10 of the condition number of one family minus that of the other at each loss they share, run by run."""
    first, second = (by_loss(readings, family, "condition_number") for family in families)
    shared = [loss for loss in first if loss in second and loss >= least]
    return {loss: first[loss].log10() - second[loss].log10() for loss in shared}


@_claim("Figure 5, Section 5.2", "> 0 at every loss")
def _always_smaller(readings: Readings) -> Judgement:
    """The condition numbers of 2-shortcut networks at different losses are always smaller."""
    two, orthogonal = (by_loss(readings, family, "condition_number") for family in ("2-shortcut", "orthogonal"))
    worst = min(float((orthogonal[loss].amin() / two[loss].amax()).log10()) for loss in two)
    return decide_correction(
        (statistics.exactly(worst), Band(0.0, math.inf)),
        (over_losses(log_gaps(readings, SMALL)), Band(0.0, math.inf)),
        "log10 of the condition number with orthogonal initialisation minus that of 2-shortcut networks. Printed: "
        f"always positive; near the end some runs have it the other way round, by up to {-worst:.2f}. Right: positive "
        f"in the mean for losses of at least {SMALL:g} (the number: at the worst of these losses).",
    )


@_claim("Figure 5, Section 5.2", "log10 ratio > 0; we ask for ≥ 1")
def _much_smaller_when_large(readings: Readings) -> Judgement:
    """They are smaller especially when the loss is large."""
    sentence = (
        "log10 of the ratio of condition numbers, orthogonal over 2-shortcut, smallest for losses from 2 on. We ask "
        "for at least 10 times."
    )
    return decide(over_losses(log_gaps(readings, 2.0)), Band(1.0, math.inf), sentence)


@_claim("Figure 5", "> 0")
def _smaller_than_xavier(readings: Readings) -> Judgement:
    """They are smaller than those of networks with Xavier initialisation."""
    losses, xavier = at_losses(readings, "xavier", "condition_number")
    two = by_loss(readings, "2-shortcut", "condition_number")
    largest = max(float(found.amax()) for loss, found in two.items() if loss >= min(losses))
    sentence = (
        "log10 of the condition number of Xavier networks, mean over the losses they come to, minus the largest of any "
        f"2-shortcut network at a loss of at least {min(losses):g}."
    )
    gaps = xavier.log10().nanmean(1) - math.log10(largest)
    return decide(over_seeds(gaps[gaps.isfinite()]), Band(0.0, math.inf), sentence)


@_claim("Figure 5, Section 5.2", "a last value")
def _same_value_at_the_end(readings: Readings) -> Judgement:
    """The condition numbers roughly evolve to the same value for orthogonal and 2-shortcut networks."""
    both = [by_loss(readings, family, "condition_number") for family in ("2-shortcut", "orthogonal")]
    rises = torch.stack([(found[END] / found[NEARLY]).log10() for found in both]).mean(0)
    rise = over_seeds(rises[rises.isfinite()])  # of the runs that came so far
    level = math.log10(2)  # change of a number that has come to its last value
    return decide_correction(
        (rise, Band.around(0.0, level)),
        (rise, Band(level, math.inf)),
        f"Rise of log10 of the condition number from the loss {NEARLY:g} to {END:g}, mean of both kinds of networks. "
        "Printed: it comes to the same value for both. Right: it comes to none; at a minimum only d² eigenvalues are "
        "not zero, whatever the depth.",
    )


@_claim("Section 5", "difference 0")
def _one_shortcut_like_orthogonal(readings: Readings) -> Judgement:
    """The training dynamics of 1-shortcut networks are similar to those with orthogonal initialisation."""
    gaps = log_gaps(readings, 1.0, ("1-shortcut", "orthogonal"))
    sentence = "log10 of the 1-shortcut networks' condition number minus orthogonal ones', worst loss from 1 on."
    return decide(over_losses(gaps), Band.around(0.0, 0.1), sentence)


FIG5 = (
    *(_always_smaller, _much_smaller_when_large, _smaller_than_xavier),
    *(_same_value_at_the_end, _one_shortcut_like_orthogonal),
)

DROP = common.WIDTH * (common.WIDTH + 1) // 2
"""Negative eigenvalues that a 2-shortcut network loses at the beginning; at a loss of 1.5 they are gone."""


def lost(readings: Readings, index: Tensor) -> Tensor:
    """How many negative eigenvalues fewer than half of all there are."""
    return (0.5 - index) * (values(readings, "depth")[0] * common.WIDTH**2)


@_claim("Figure 6 left", "> 0 at every loss")
def _smaller(readings: Readings) -> Judgement:
    """The index of a 2-shortcut network is always smaller."""
    two, orthogonal = (by_loss(readings, family, "index") for family in ("2-shortcut", "orthogonal"))
    least = 0.4  # below this loss eigenvalues near zero have no sure sign
    gaps = {loss: orthogonal[loss] - two[loss] for loss in two if loss >= least}
    sentence = (
        "Index with orthogonal initialisation minus that of 2-shortcut networks; smallest over losses of at least "
        f"{least:g}."
    )
    return decide(over_losses(gaps), Band(0.0, math.inf), sentence)


@_claim("Figure 6 left", "a sudden drop")
def _drop(readings: Readings) -> Judgement:
    """It drops dramatically at the beginning."""
    found = lost(readings, by_loss(readings, "2-shortcut", "index")[1.5])
    share = 0.5 - DROP / (values(readings, "depth")[0] * common.WIDTH**2)
    sentence = (
        f"Negative eigenvalues lost from the start to a loss of 1.5; d(d + 1)/2 = {DROP} make the index fall "
        f"from 0.5 to {share:.4f}."
    )
    return decide(over_seeds(found), Band.around(float(DROP), 1.6), sentence)  # 0.001 of the index


@_claim("Figure 6 right", "between 0 and 1")
def _gradient(readings: Readings) -> Judgement:
    """The gradient reaches its maximum while the index drops."""
    sentence = (
        "Epoch of the largest gradient, as a share of the way from the epoch at which the index begins to drop to the "
        "one at which it has dropped."
    )
    return decide(over_seeds(peak_places(readings)), Band(0.0, 1.0), sentence)


def peak_places(readings: Readings) -> Float[Tensor, " replicates"]:
    """The peak of the gradient of each run: 0 is the beginning of the drop, 1 its end."""
    epochs = stacked(readings, "epoch", descent).double()
    gone = lost(readings, stacked(readings, "index", descent))
    peak = stacked(readings, "gradient_norm", descent).argmax(1)
    # Eigenvalues lost when the drop has begun (index 0.4995 at 16 matrices) and when it has nearly ended (0.47).
    places, last = torch.arange(gone.shape[1]), gone.shape[1] - 1
    begun, ended = (torch.where(gone > count, places, last).amin(1) for count in (0.8, 48.0))
    begun_at, peak_at, ended_at = (epochs.gather(1, place[:, None])[:, 0] for place in (begun, peak, ended))
    return (peak_at - begun_at) / (ended_at - begun_at)


FIG6 = (_smaller, _drop, _gradient)


def draw_fig5(readings: Readings) -> tuple[Figure, ...]:
    """Maxima and 10th percentiles of the |eigenvalues|, and their ratio."""
    eigenvalues: list[Mark] = []
    conditions: list[Mark] = []
    for number, family in enumerate(LEARNING_RATES):
        for quantity, word, dashed in (("largest", "maximum", False), ("tenth", "10th percentile", True)):
            losses, found = at_losses(readings, family, quantity)
            eigenvalues += statistics.curve(losses, found.log10(), f"{family}, {word}", number, dashed)
        losses, found = at_losses(readings, family, "condition_number")
        conditions += statistics.curve(losses, found.log10(), family, number)
    whole = (
        "Whole lines are maxima, dashed ones 10th percentiles; their distance is the condition number. It is smallest "
        "for 2-shortcut networks, most of all while the loss is large."
    )
    ratio = "The ratio of the two curves of each kind of network. Near the lowest loss all rise without bound."
    words, label = ("condition_numbers_at_losses", "Figure 5: condition numbers"), "log10(|λ|max / |λ|(0.1))"
    return (
        _against_loss(("eigenvalues_at_losses", "Figure 5: |eigenvalues|"), whole, "log10 |λ|", eigenvalues),
        _against_loss(words, ratio, label, conditions),
    )


def draw_fig6(readings: Readings) -> tuple[Figure, ...]:
    """The index against the loss, and a single run's gradient and index."""
    marks = statistics.curves((*at_losses(readings, family, "index"), family) for family in LEARNING_RATES)
    caption = "The index of 2-shortcut networks is below that of orthogonal ones, and drops at the beginning."
    left = _against_loss(("index_at_losses", "Figure 6 left: share of negative eigenvalues"), caption, "index", marks)
    run = chosen(readings, descent)[0]
    epochs, gradient = numbers(run["epoch"]), run["gradient_norm"]
    marks = [
        Line(epochs, numbers(gradient / gradient.max()), f"gradient (maximum {float(gradient.max()):.3f})"),
        Line(epochs, numbers(2 * run["index"]), "2 × index"),
    ]
    words = ("gradient_and_index", "Figure 6 right: gradient and index of a 2-shortcut network, one run")
    caption = (
        "The gradient is largest while the index drops: the network leaves the saddle along directions of negative "
        "curvature."
    )
    return left, statistics.figure(words, caption, ("epoch", "gradient over its maximum, 2 × index"), marks)


def _against_loss(words: tuple[str, str], caption: str, y_label: str, marks: list[Mark]) -> Figure:
    caption = f"{caption} Training goes from right to left. Bands are one standard deviation over runs."
    return statistics.figure((words[0], f"{words[1]} at different losses"), caption, ("loss", y_label), marks, log="x")


_DEVIATIONS = (
    "The paper gives no learning rates and no number of runs: here 0.1 with shortcuts of length 2, 0.01 for orthogonal "
    "and 1-shortcut networks, 10^-1.75 for Xavier's; curves against the loss hardly depend on them.",
    "The smoke preset has depth 6 instead of 16, and decides nothing about training.",
    *common.DIGITS,
)

ITEMS = (
    Item("fig5", "eigenvalues along training", fig5_runs, FIG5, draw_fig5, statistics.raw_tables, _DEVIATIONS),
    Item("fig6", "index and gradient along training", fig6_runs, FIG6, draw_fig6, statistics.raw_tables, _DEVIATIONS),
)
