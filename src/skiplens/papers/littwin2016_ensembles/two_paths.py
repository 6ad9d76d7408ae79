"""What theorems 3 and 4 share: spin-glass losses of two path lengths, and points of them where a scale's slope is 0."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from scipy.optimize import brentq
from torch import Tensor

from skiplens.base.axes import Float
from skiplens.base.randomness import Randomness
from skiplens.base.settings import option
from skiplens.papers.littwin2016_ensembles.common import SIZES, judge_always, repeated
from skiplens.papers.littwin2016_ensembles.spin_glass.complexity import Mixture
from skiplens.papers.littwin2016_ensembles.spin_glass.hamiltonian import SpinGlass, random_points
from skiplens.papers.statistics import Readings, ReplicateSettings, chosen, mean_points
from skiplens.papers.study import Judgement, Preset
from skiplens.plots.figure import Points
from skiplens.sweeps.run import Run

LEADING_ORDER = 4e-4  # how far the ratio of a step to its leading order may be from 1 at the smallest learning rate
LOSSES: dict[Preset, int] = {"smoke": 4, "laptop": 20, "paper": 50}  # of a replicate

SPIN_GLASS = (
    "The paper has no example. Here losses are random spin glasses of orders (2, 4) with 8 weights and (3, 5) with 6, "
    "scales around ±1, σ = 1; each point lies on a random great circle where the hypothesis holds to rounding: "
    "L_m + L_p = 0 for a layer without skip, L_p = 0 for one with it (one hypothesis in the paper)."
)

_ANGLES = 64  # of a great circle, among which a change of sign is looked for
_CIRCLES = 10  # looked at before another spin glass is drawn


@dataclass(frozen=True)
class TwoPaths(ReplicateSettings):
    """Gradient steps on spin-glass losses of two orders (theorems 3 and 4)."""

    short: int = option(2, "order of the short paths, m")
    long: int = option(4, "order of the long paths, p")
    spins: int = option(8, "distinct weights, Λ")
    losses: int = option(20, "losses drawn")
    rates: tuple[float, ...] = option((1e-2, 1e-3, 1e-4, 1e-5), "learning rates, μ")


def two_path_runs(measure: Callable[[TwoPaths], Any], preset: Preset, seed: int) -> list[Run]:
    """Runs of a measure on losses of two pairs of orders."""
    pairs = (TwoPaths(losses=LOSSES[preset]), TwoPaths(short=3, long=5, spins=6, losses=LOSSES[preset]))
    return [run for pair in pairs for run in repeated(measure, pair, SIZES[preset].replicates, seed)]


def for_each_loss(
    settings: TwoPaths, measure: Callable[[TwoPaths, torch.Generator], dict[str, Tensor]]
) -> dict[str, Tensor]:
    """What is measured on each of the losses, one row a loss; every loss has a stream of its own."""
    randomness = Randomness(settings.seed).child(settings.key())
    rows = [measure(settings, randomness.child(number).torch()) for number in range(settings.losses)]
    return {name: torch.stack([row[name] for row in rows]) for name in rows[0]}


def two_orders(settings: TwoPaths) -> Mixture:
    """Equal parts of the orders m and p."""
    weights = torch.zeros(settings.long, dtype=torch.float64)
    weights[[settings.short - 1, settings.long - 1]] = 1.0
    return Mixture(weights)


def balanced_point(
    glass_of: tuple[Mixture, int], factors: Float[Tensor, " orders"], generator: torch.Generator, size: float = 1.0
) -> tuple[SpinGlass, Float[Tensor, " spins"]]:
    """A spin glass and a point of it where Σ factor_r L_r = 0; a glass whose sum has one sign is drawn again.

    `glass_of` is its mixture and its number of spins, `size` is C of the weights.
    """
    while True:
        glass = SpinGlass.sample(*glass_of, generator)
        for _ in range(_CIRCLES):
            point = _zero_on_random_circle(glass, factors, generator, size)
            if point is not None:
                return glass, point


def _zero_on_random_circle(
    glass: SpinGlass, factors: Tensor, generator: torch.Generator, size: float
) -> Float[Tensor, " spins"] | None:
    """Where Σ factor_r L_r changes sign on a random great circle, to rounding; none if it does not."""
    first, second = (size * point for point in random_points(2, glass.dimension, generator))
    second = second - (first @ second) / first.square().sum() * first
    second = second * (first.norm() / second.norm())

    def at(angles: Tensor) -> Tensor:
        return angles.cos()[:, None] * first + angles.sin()[:, None] * second

    def total(angle: float) -> float:
        return float(glass.energy_by_order(at(torch.tensor([angle], dtype=torch.float64))) @ factors)

    angles = torch.linspace(0, 2 * math.pi, _ANGLES + 1, dtype=torch.float64)
    values = glass.energy_by_order(at(angles)) @ factors
    changes = (values[:-1] * values[1:] < 0).nonzero().flatten()
    if not len(changes):
        return None
    low, high = angles[changes[0]], angles[changes[0] + 1]
    angle = brentq(total, float(low), float(high), xtol=1e-15, rtol=1e-14)
    return at(torch.tensor([angle], dtype=torch.float64))[0]


def ratio(measured: Tensor, predicted: Tensor) -> Tensor:
    """The factor that fits measured to predicted numbers best."""
    return (measured * predicted).sum() / predicted.square().sum()


def ratios(readings: Readings, measure: str, measured: str, predicted: str) -> list[Tensor]:
    """That factor at the smallest learning rate, for each replicate."""
    return [ratio(reading[measured][:, -1], reading[predicted]) for reading in chosen(readings, measure)]


def judge_every_loss(happened: Sequence[Tensor], sentence: str) -> Judgement:
    """Whether something happened on every loss of each replicate that has some; `{losses}` becomes their number."""
    shares = [of_replicate.double().mean() for of_replicate in happened if len(of_replicate)]
    return judge_always(shares, sentence.format(losses=sum(map(len, happened))))


def against_rate(readings: Readings, measure: str, arrays: tuple[str, str], name: str) -> Points:
    """What was measured over what is predicted, for each learning rate."""
    found = chosen(readings, measure)
    measured, predicted = arrays
    rows = [torch.stack([ratio(column, one[predicted]) for column in one[measured].T]) for one in found]
    return mean_points(found[0].setting("rates"), torch.stack(rows), name)
