"""Figure 3: norms of 2-shortcut networks of several depths while they are trained, linear and with ReLU."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from skiplens.base import Randomness, option
from skiplens.base.axes import Float
from skiplens.papers import statistics
from skiplens.papers.li2016_shortcuts import common
from skiplens.papers.li2016_shortcuts.common import Source
from skiplens.papers.statistics import Band, Readings, chosen, curve, decide, figure, over_seeds, slope, values
from skiplens.papers.study import Item, Judgement, Preset, claims
from skiplens.plots.figure import Figure, Mark
from skiplens.sweeps.run import Run
from skiplens.training.batched import BatchedPlan, Units, drawn_starts, train_linear_networks, train_rectified_networks

CLAIM_EPOCHS = (50, 100, 200, 500, 1000)  # at which norms are compared
EXPONENT = Band(-0.5, -0.3)  # of the final norm in the depth; theorem 1's network has -1/2


@dataclass(frozen=True)
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
SIZES: dict[Preset, tuple[Source, tuple[int, ...], int, tuple[int, ...]]] = {
    "smoke": ("sample", (4, 8, 16, 32), 200, (4, 8, 16)),
    "laptop": ("mnist", _DEPTHS, 1000, (4, 8, 16, 32, 64)),
    "paper": ("mnist", _DEPTHS, 60000, _DEPTHS),
}


def runs(preset: Preset, seed: int) -> list[Run]:
    """Linear networks and networks with ReLU, each of several depths."""
    source, linear_depths, samples, rectified_depths = SIZES[preset]
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
        data = (inputs.float(), targets.float())
        run = train_rectified_networks(starts.float(), rates.float(), data, plan)
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
        (reading,) = chosen(readings, activation=activation, depth=depth)
        known = reading["epoch"].tolist()
        columns.append(reading["norm"][[known.index(epoch) for epoch in epochs]].T)
    return slope([math.log(depth) for depth in depths], torch.stack(columns, dim=1).log().transpose(1, 2))


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
CLAIMS = (_DECREASE[0], _END[0], _DECREASE[1], _END[1])


def figures(readings: Readings) -> tuple[Figure, ...]:
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
        marks: list[Mark] = []
        for number, reading in enumerate(chosen(readings, activation=activation)):
            marks += curve(reading["epoch"], reading["norm"].T, f"depth {reading.setting('depth')}", number)
        title = f"Figure 3 {side}: 2-shortcut networks {words}"
        panels.append(figure((f"norms_{side}", title), caption, ("epoch", "mean of ‖W‖_F over the matrices"), marks))
    return tuple(panels)


_DEVIATIONS = (
    "The paper gives no depths, no learning rate and no number of runs for figure 3: here a rate of 0.1 and 20 "
    "networks of each depth.",
    "Networks with ReLU are trained in float32 on the first 1,000 digits (200 at smoke, all at paper), whitened by "
    "themselves.",
    common.DEPTH,
    common.SIGNS,
    common.SMOKE_IMAGES,
)

ITEMS = (Item("fig3", "norms during training", runs, CLAIMS, figures, statistics.raw_tables, _DEVIATIONS),)
