"""Figures 3 and 4: norms of networks during training, and condition numbers of linear ones at their first weights."""

import math
from collections.abc import Sequence
from typing import Literal

import torch
from torch import Tensor

from skiplens.base import Float, Randomness, option
from skiplens.papers import statistics
from skiplens.papers.li2016_shortcuts import common
from skiplens.papers.li2016_shortcuts.common import FamilyName, Source
from skiplens.papers.li2016_shortcuts.hessian import linear_hessian, spectrum_of
from skiplens.papers.statistics import Band, Readings, curves, decide, figure, over_seeds, raw_tables, values
from skiplens.papers.study import Item, Judgement, Preset, claim, claims
from skiplens.plots.figure import Figure
from skiplens.sweeps.run import Run
from skiplens.training.batched import BatchedPlan, Units, drawn_starts, train_linear_networks, train_rectified_networks

CLAIM_EPOCHS = (50, 100, 200, 500, 1000)  # at which norms are compared
EXPONENT = Band(-0.5, -0.3)  # of the final norm in the depth; theorem 1's network has -1/2
FIRST, DOUBLING = 8, Band(1.9, 2.3)  # when the depth doubles from 8 on: the factor if growth is linear
LIMIT = 1e13  # beyond it the 10 % quantile is rounding: float64 resolves about 1e-15 of the largest eigenvalue


class NormHistory(statistics.ReplicateSettings):
    """Norms of many 2-shortcut networks of one depth, trained as one program."""

    activation: Literal["identity", "relu"] = option("identity", "between the two matrices of a unit")
    depth: int = option(4, "weight matrices (D)")
    networks: int = option(10, "networks with different initial weights")
    learning_rate: float = option(0.1, "of gradient descent")
    epochs: int = option(1000, "updates, each with all samples")
    every: int = option(10, "epochs between two looks")
    source: Source = option("mnist", "digits: the embedded ones or all of MNIST")
    samples: int | None = option(None, "first digits only, whitened by themselves")


_DEPTHS = (4, 8, 16, 32, 64, 96)

# Digits and depths of linear networks; number of digits and depths of networks with ReLU.
FIG3_SIZES: dict[Preset, tuple[Source, tuple[int, ...], int, tuple[int, ...]]] = {
    "smoke": ("sample", (4, 8, 16, 32), 200, (4, 8, 16)),
    "laptop": ("mnist", _DEPTHS, 1000, (4, 8, 16, 32, 64)),
    "paper": ("mnist", _DEPTHS, 60000, _DEPTHS),
}


def fig3_runs(preset: Preset, seed: int) -> list[Run]:
    """Linear networks and networks with ReLU, each of several depths."""
    source, linear_depths, samples, rectified_depths = FIG3_SIZES[preset]
    linear = NormHistory(networks=20, source=source)
    first: Source = "mnist" if preset == "paper" else "sample"  # the embedded digits are the first of MNIST
    rectified = NormHistory(activation="relu", networks=20, source=first, samples=samples)
    return [
        *statistics.replicated(norm_history, linear, 1, seed, _cost, depth=linear_depths),
        *statistics.replicated(norm_history, rectified, 1, seed, _cost, depth=rectified_depths),
    ]


def _cost(settings: NormHistory) -> float:
    """Products of matrices: with ReLU every sample has its own."""
    return settings.depth * settings.networks * (1 + (settings.samples or 0) / 50)


def norm_history(settings: NormHistory) -> dict[str, Tensor]:
    """Mean over the matrices of ‖W‖_F, and the loss, of every network (epochs, networks)."""
    family = common.FAMILIES["2-shortcut"]
    streams = [Randomness(settings.seed).child(settings.key(), network) for network in range(settings.networks)]
    starts = drawn_starts(family.law, settings.depth, common.WIDTH, streams)
    rates = torch.full((settings.networks,), settings.learning_rate, dtype=torch.float64)
    plan = BatchedPlan(settings.epochs, record_at=tuple(range(0, settings.epochs + 1, settings.every)))
    if settings.activation == "identity":
        moments = common.digit_moments(settings.source, settings.samples)
        run = train_linear_networks(starts, rates, moments, plan, Units(family.branch_depth, family.shortcut))
    else:
        inputs, targets = common.whitened_digits(settings.source, settings.samples)
        run = train_rectified_networks(starts.float(), rates.float(), (inputs.float(), targets.float()), plan)
    return {"epoch": run.epochs, "norm": run.mean_norm_history.double(), "loss": run.loss_history.double()}


def judge_decrease(readings: Readings, activation: str) -> Judgement:
    """Whether norms fall with depth at every epoch looked at."""
    found = _exponents(readings, activation, CLAIM_EPOCHS)
    epochs = ", ".join(map(str, CLAIM_EPOCHS))
    sentence = f"Exponent of the mean Frobenius norm in the depth, the largest after {epochs} epochs."
    return decide(over_seeds(found), Band(-math.inf, 0.0), sentence)


def judge_end(readings: Readings, activation: str) -> Judgement:
    """How fast the final norms fall with depth."""
    found = _exponents(readings, activation, CLAIM_EPOCHS[-1:])
    sentence = (
        f"Exponent of the mean Frobenius norm in the depth after {CLAIM_EPOCHS[-1]} epochs. We ask for an exponent "
        f"from {EXPONENT.low:g} to {EXPONENT.high:g}; theorem 1's limit is -1/2."
    )
    return decide(over_seeds(found), EXPONENT, sentence)


def _exponents(readings: Readings, activation: str, epochs: Sequence[int]) -> Float[Tensor, "networks epochs"]:
    """Of the norm in the depth, for each network of the same number and each epoch."""
    depths = values(readings, "depth", activation=activation)
    columns = []
    for depth in depths:
        (reading,) = statistics.chosen(readings, activation=activation, depth=depth)
        known = reading["epoch"].tolist()
        columns.append(reading["norm"][[known.index(epoch) for epoch in epochs]].T)
    return statistics.slope([math.log(depth) for depth in depths], torch.stack(columns, dim=1).log().transpose(1, 2))


_SMALLER = "The deeper a 2-shortcut network is, the smaller are its norms during training"
_NEARER = "When the training ends, deeper networks are nearer to zero, as theorem 1 allows"
_DECREASE = claims(
    judge_decrease,
    ("linear_decrease", f"{_SMALLER} (linear).", "Figure 3 left", "exponent < 0", "identity"),
    ("relu_decrease", f"{_SMALLER} (ReLU).", "Figure 3 right", "exponent < 0", "relu"),
)
_FALLS = "falls with depth: exponent < 0"
_END = claims(
    judge_end,
    ("linear_end", f"{_NEARER} (linear).", "Figure 3 left, Section 4.1", _FALLS, "identity"),
    ("relu_end", f"{_NEARER} (ReLU).", "Figure 3 right, Section 4.1", _FALLS, "relu"),
)
FIG3 = (_DECREASE[0], _END[0], _DECREASE[1], _END[1])


def draw_fig3(readings: Readings) -> tuple[Figure, ...]:
    """Left: linear. Right: with ReLU between the matrices."""
    caption = (
        "Mean Frobenius norm of a network's matrices against the epoch, one line a depth. Bands are one standard "
        "deviation over networks."
    )
    panels = []
    for activation, side, words in (
        ("identity", "left", "without nonlinearities"),
        ("relu", "right", "with ReLUs at mid positions"),
    ):
        found = statistics.chosen(readings, activation=activation)
        marks = curves((one["epoch"], one["norm"].T, f"depth {one.setting('depth')}") for one in found)
        title = f"Figure 3 {side}: 2-shortcut networks {words}"
        panels.append(figure((f"norms_{side}", title), caption, ("epoch", "mean of ‖W‖_F over the matrices"), marks))
    return tuple(panels)


_FIG3 = (
    "The paper gives no depths, no learning rate and no number of runs for figure 3: here a rate of 0.1 and 20 "
    "networks of each depth.",
    "Networks with ReLU are trained in float32 on the first 1,000 digits (200 at smoke, all at paper), whitened by "
    "themselves.",
    common.DEPTH,
    common.SIGNS,
    common.SMOKE_IMAGES,
)


FAMILY_NAMES: tuple[FamilyName, ...] = ("xavier", "orthogonal", "1-shortcut", "2-shortcut")


class InitialSpectrum(statistics.ReplicateSettings):
    """The Hessian's spectrum of a linear network at its initial weights."""

    family: FamilyName = option("2-shortcut", "initialisation and shortcuts")
    depth: int = option(2, "weight matrices (D)")
    source: Source = option("mnist", "digits: the embedded ones or all of MNIST")


# Replicates, depths and digits.
FIG4_SIZES: dict[Preset, tuple[int, tuple[int, ...], Source]] = {
    "smoke": (10, (2, 4, 8), "sample"),
    "laptop": (16, (2, 4, 8, 16), "mnist"),
    "paper": (20, (2, 4, 8, 16, 32, 64, 96), "mnist"),
}


def fig4_runs(preset: Preset, seed: int) -> list[Run]:
    """Four kinds of networks at several depths."""
    replicates, depths, source = FIG4_SIZES[preset]
    base = InitialSpectrum(source=source)

    def cost(settings: InitialSpectrum) -> float:  # of the eigenvalues of a matrix with this many rows
        return (settings.depth / 16) ** 3

    return statistics.replicated(initial_spectrum, base, replicates, seed, cost, family=FAMILY_NAMES, depth=depths)


def initial_spectrum(settings: InitialSpectrum) -> dict[str, Tensor]:
    """Largest, 10 % quantile and condition number of the |eigenvalues|, the index, and equation (9) for these data."""
    moments = common.digit_moments(settings.source)
    family = common.FAMILIES[settings.family]
    spectrum = spectrum_of(linear_hessian(family.units(family.start(settings.depth, settings.stream())), moments))
    return common.scalars(
        largest=spectrum.largest_absolute,
        tenth=spectrum.absolute_quantile(0.1),
        condition_number=spectrum.condition_number,
        full_condition_number=spectrum.full_condition_number,
        index=spectrum.index,
        zero_condition_number=common.printed_condition_number(moments.inputs - moments.cross),
    )


def log_conditions(readings: Readings, family: str) -> tuple[list[int], Float[Tensor, "replicates depths"]]:
    """The depths, and log10 of the condition numbers (replicates, depths)."""
    depths, found = statistics.against(readings, "condition_number", "depth", initial_spectrum, family=family)
    return depths, found.clamp(max=LIMIT).log10()


@claim("Figure 4", "as at zero, Eq. 9")
def _two_shortcut(readings: Readings) -> Judgement:
    """2-shortcut linear networks have constant condition numbers."""
    _, found = log_conditions(readings, "2-shortcut")
    expected = math.log10(float(statistics.stacked(readings, "zero_condition_number", initial_spectrum)[0]))
    sentence = f"log10 of the condition number minus that of equation (9), {expected:.4f}; worst depth."
    return decide(over_seeds(found - expected), Band.around(0.0, 0.005), sentence)


def linear_growth(readings: Readings, family: str) -> Judgement:
    """How the condition number grows when the depth doubles."""
    depths, found = log_conditions(readings, family)
    doublings = [D >= FIRST for D in depths[:-1]]
    if not any(doublings):
        return Judgement("not attempted", explanation=f"No network is deeper than {FIRST}. Use a larger preset.")
    factors = (found.diff(dim=1) * math.log(10)).exp()[:, doublings]
    sentence = (
        f"Factor of the condition number for each doubling of the depth from {FIRST} on; worst depth. Any factor "
        f"that stays above 1 goes to infinity; we ask for linear growth, {DOUBLING.low:g} to {DOUBLING.high:g}."
    )
    return decide(over_seeds(factors), DOUBLING, sentence)


@claim("Figure 4, Section 5.1", "→ ∞: log10 a layer > 0")
def _xavier(readings: Readings) -> Judgement:
    """With Xavier initialisation the initial condition number goes to infinity with depth."""
    depths, found = log_conditions(readings, "xavier")
    chosen = [D >= 4 for D in depths]
    per_layer = found[:, chosen] / torch.tensor(depths, dtype=torch.float64)[chosen]
    sentence = (
        f"log10 of the condition number over the depth, from depth 4 on; smallest. (Above {LIMIT:g} it is rounding.) "
        "We ask for at least 0.3."
    )
    return decide(over_seeds(per_layer), Band(0.3, math.inf), sentence)


@claim("Section 5.1", "> 0")
def _orthogonal_slower(readings: Readings) -> Judgement:
    """The condition number grows slower with orthogonal than with Xavier initialisation."""
    orthogonal, xavier = (log_conditions(readings, family)[1] for family in ("orthogonal", "xavier"))
    sentence = "log10 of Xavier's condition number minus that of orthogonal networks; smallest over the depths."
    return decide(over_seeds(xavier - orthogonal), Band(0.0, math.inf), sentence)


@claim("Section 5", "difference 0")
def _one_shortcut_like_orthogonal(readings: Readings) -> Judgement:
    """1-shortcut networks are similar to linear networks with orthogonal initialisation."""
    orthogonal, shortcut = (log_conditions(readings, family)[1] for family in ("orthogonal", "1-shortcut"))
    sentence = "log10 of the 1-shortcut networks' condition number minus that of orthogonal ones; worst depth."
    return decide(over_seeds(shortcut - orthogonal), Band.around(0.0, 0.1), sentence)


_ORTHOGONAL = "With orthogonal initialisation the initial condition number goes to infinity with depth."
_UNBOUNDED = "The condition number of 1-shortcut networks grows unboundedly with depth."
_GROWING = claims(
    linear_growth,
    ("orthogonal", _ORTHOGONAL, "Figure 4, Section 5.1", "→ ∞: factor > 1 a doubling", "orthogonal"),
    ("one_shortcut", _UNBOUNDED, "Section 2", "→ ∞: factor > 1 a doubling", "1-shortcut"),
)
FIG4 = (_two_shortcut, *_GROWING, _xavier, _orthogonal_slower, _one_shortcut_like_orthogonal)


def draw_fig4(readings: Readings) -> tuple[Figure, ...]:
    """One curve a kind of network."""
    marks = curves((*log_conditions(readings, family), family) for family in FAMILY_NAMES)
    words = ("initial_condition_numbers", "Figure 4: initial condition numbers of linear networks")
    caption = (
        "2-shortcut networks have the same condition number at every depth. It grows linearly for 1-shortcut networks "
        "and orthogonal initialisation, and exponentially for Xavier's, up to what float64 can tell. Bands are one "
        "standard deviation."
    )
    return (figure(words, caption, ("depth (weight matrices)", "log10(|λ|max / |λ|(0.1))"), marks),)


_FIG4 = (
    "The paper gives no depths for figure 4: here 2, 4, 8, … matrices, up to 8 (smoke), 16 (laptop) or 96 (paper).",
    "The paper has 10 runs of each network, here are 10 (smoke), 16 (laptop) or 20 (paper).",
    f"Condition numbers above {LIMIT:g} are shown as {LIMIT:g}: float64 cannot tell them from infinite ones.",
    "3-shortcut networks are left out: at zero their Hessian is the zero matrix.",
    *common.DIGITS,
)

ITEMS = (
    Item("fig3", "norms during training", fig3_runs, FIG3, draw_fig3, raw_tables, _FIG3),
    Item("fig4", "initial condition numbers against depth", fig4_runs, FIG4, draw_fig4, raw_tables, _FIG4),
)
