"""Theorem 1: an explicit network with small weights maps every sample to its label, the smaller the deeper it is."""

import math

import torch
from torch import Tensor

from skiplens.base import Float, option
from skiplens.data.synthetic import random_unit_vectors
from skiplens.papers import statistics
from skiplens.papers.li2016_shortcuts import small_weights
from skiplens.papers.li2016_shortcuts.common import EQUAL, judge_equality, scalars
from skiplens.papers.li2016_shortcuts.small_weights import SmallWeightNetwork, small_weight_network
from skiplens.papers.statistics import Band, Readings, against, decide, decide_correction, over_seeds, stacked, values
from skiplens.papers.study import Item, Judgement, Preset, claim
from skiplens.plots.figure import INK, Figure, Line, numbers
from skiplens.sweeps.run import Run


class Points(statistics.ReplicateSettings):
    """Random unit vectors, and a different standard basis vector as the label of each."""

    samples: int = option(6, "points to move (m)")
    width: int = option(10, "features (d)")


class Construction(Points):
    """The network of theorem 1 with a given number of units."""

    units: int = option(125, "residual units (R)")


class OneStep(Points):
    """A single unit of lemma 1 that moves one of several points."""

    distance: float = option(0.1, "how far the point moves")


class SharedLabels(Points):
    """Twice as many samples as labels, fitted nearly."""

    samples: int = option(20, "points to move (m)")
    distance: float = option(0.1, "how far surrogate targets may be from the labels")
    units: int = option(500, "residual units (R)")


# Replicates, numbers of units, and those for samples that share labels.
SIZES: dict[Preset, tuple[int, tuple[int, ...], int]] = {
    "smoke": (12, (125, 250, 500), 500),
    "laptop": (20, (125, 250, 500, 1000, 2000, 4000), 2000),
    "paper": (50, (125, 250, 500, 1000, 2000, 4000, 8000, 16000), 8000),
}


def runs(preset: Preset, seed: int) -> list[Run]:
    """Constructions of several depths, single steps, and samples that share labels."""
    count, units, shared_units = SIZES[preset]

    def cost(settings: Construction | SharedLabels) -> float:
        return float(settings.units)

    return [
        *statistics.replicated(construction, Construction(), count, seed, cost, units=units),
        *statistics.replicated(one_step, OneStep(), count, seed),
        *statistics.replicated(shared_labels, SharedLabels(units=shared_units), count, seed, cost),
    ]


def construction(settings: Construction) -> dict[str, Tensor]:
    """Fit, norms and path lengths of the printed construction with so many units."""
    inputs, targets = points(settings, settings.shared_stream("points"))  # the same at every depth
    built = small_weight_network(inputs, targets, units=settings.units, kind="printed", verify=False)
    outputs = inputs
    for first in range(0, settings.units, 500):  # matrices of so many units at once
        outputs = run_units(built.network.matrices(first, first + 500), outputs)
    step = float(built.network.moves.norm(dim=1).max())
    rho, m = built.separation, settings.samples
    return scalars(
        fit_error=float((outputs - targets).norm(dim=1).max()),
        largest_norm=_largest_norm(built.network),
        longest_step=step,
        separation=rho,
        norm_constant=built.norm_constant,
        longest_path=float(built.path_lengths.max()),
        path_bound=small_weights.length_bound(m, rho),
        allowed_units=float(small_weights.units_bound(m, rho, step)),
    )


def one_step(settings: OneStep) -> dict[str, Tensor]:
    """Error of a unit of lemma 1, as printed in equations (15) to (17), that moves the first of the points."""
    generator = settings.stream()
    A = random_unit_vectors(settings.samples, settings.width, generator, torch.float64)
    rho = 2 * float(torch.pdist(A).min())  # the points are as near to each other as the lemma allows
    draw = torch.randn(settings.width, dtype=torch.float64, generator=generator)
    side, angle = draw - (draw @ A[0]) * A[0], 2 * math.asin(settings.distance / 2)
    goal = math.cos(angle) * A[0] + math.sin(angle) * side / side.norm()
    delta = float((goal - A[0]).norm())
    c = math.sqrt(8 * delta) / rho
    W_1, W_2 = torch.zeros(2, settings.width, settings.width, dtype=torch.float64)
    W_1[0] = c * A[0]
    W_2[:, 0] = math.sqrt(8 / delta) / rho * (goal - A[0])
    b = torch.full((settings.width,), c * (rho**2 / 8 - 1), dtype=torch.float64)
    error = (A + torch.relu(A @ W_1.T + b) @ W_2.T - torch.cat([goal[None], A[1:]])).abs().max()
    norms = torch.stack([W_1.norm(), W_2.norm()])
    return {"error": error, "norm_error": (norms / c - 1).abs().max(), "separation": torch.tensor(rho)}


def shared_labels(settings: SharedLabels) -> dict[str, Tensor]:
    """The separation of samples that share labels, and the loss of the network for surrogate targets."""
    generator = settings.stream()
    inputs, targets = points(settings, generator)
    surrogates = small_weights.surrogate_targets(inputs, targets, settings.distance, generator)
    built = small_weight_network(inputs, surrogates, units=settings.units)
    outputs = run_units(built.network.matrices(), inputs)
    return scalars(
        separation=small_weights.separation(inputs, targets).distance,
        surrogate_separation=built.separation,
        loss=float((outputs - targets).square().sum() / (2 * settings.samples)),
        loss_bound=settings.distance**2 / 2,
        largest_norm=_largest_norm(built.network),
    )


def points(settings: Points, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """Unit vectors, and standard basis vectors in turn from a random one on."""
    inputs = random_unit_vectors(settings.samples, settings.width, generator, torch.float64)
    order = torch.randperm(settings.width, generator=generator)
    labels = order[torch.arange(settings.samples) % settings.width]
    return inputs, torch.eye(settings.width, dtype=torch.float64)[labels]


def run_units(
    units: tuple[Tensor, Tensor, Tensor], inputs: Float[Tensor, "samples width"]
) -> Float[Tensor, "samples width"]:
    """Equation (3): h + W_2 relu(W_1 h + b), unit after unit; `units` are all W_1, all b and all W_2."""
    h = inputs
    for W_1, b, W_2 in zip(*units, strict=True):
        h = h + torch.relu(h @ W_1.T + b) @ W_2.T
    return h


def _largest_norm(network: SmallWeightNetwork) -> float:
    """Of all matrices, as they are written down."""
    W_1, _, W_2 = network.matrices()
    return float(torch.stack([W_1.flatten(1).norm(dim=1), W_2.flatten(1).norm(dim=1)]).max())


EXPONENT = 0.02  # tolerance of the exponent of a power law: steps are whole, so it is not exactly that of the limit


def by_units(readings: Readings, name: str) -> tuple[list[int], Float[Tensor, "replicates depths"]]:
    """The numbers of units, and a number of the constructions (replicates, numbers of units)."""
    return against(readings, name, "units", construction)


def _exponent(readings: Readings, name: str) -> Tensor:
    counts, found = by_units(readings, name)
    return statistics.exponent(counts, found)


@claim("Theorem 1", f"global minimum: {EQUAL}")
def _fit(readings: Readings) -> Judgement:
    """A network of the form (3) maps every sample to its label."""
    _, errors = by_units(readings, "fit_error")
    sentence = "Distance of the outputs from the labels, equation (3) evaluated with all matrices."
    return judge_equality(errors.amax(1), sentence)


@claim("Eq. 7", "exponent -1/2")
def _norm_law(readings: Readings) -> Judgement:
    """Its weights have norms O(√(1/n)), so deeper networks have solutions nearer to zero."""
    sentence = (
        "Exponent of the largest Frobenius norm in the number of units R. (The n of equation (7) is R: the shortcut's "
        "length is 2 here at every depth.)"
    )
    return decide(over_seeds(_exponent(readings, "largest_norm")), Band.around(-0.5, EXPONENT), sentence)


@claim("Theorem 1, Eqs. 6 and 20", "below the bound")
def _norm_bound(readings: Readings) -> Judgement:
    """All norms are at most O(√(m/(nρ)) (m + 1/ρ))."""
    counts, norms = by_units(readings, "largest_norm")
    _, separations = by_units(readings, "separation")
    m = values(readings, "samples", construction)[0]
    bounds = torch.tensor([[small_weights.norm_bound(R, m, float(rho)) for R in counts] for rho in separations[:, 0]])
    sentence = (
        "Largest norm over √((8π m/(Rρ)) ((m − 1)/2 + 1/ρ)), worst depth. The printed bound has the bracket outside of "
        "the root, which is weaker and so holds too; from the paper's own lemmas the bracket belongs under it."
    )
    return decide(over_seeds(norms / bounds), Band(-math.inf, 1.0), sentence)


@claim("Proof of Theorem 1", "exponent 0 in the depth")
def _step(readings: Readings) -> Judgement:
    """By lemma 2, the steps can have the length d ≥ O(m(ρm + 1))."""
    found = over_seeds(_exponent(readings, "longest_step"))
    return decide_correction(
        (found, Band.around(0.0, EXPONENT)),
        (found, Band.around(-1.0, 2 * EXPONENT)),
        "Exponent of the longest step in the number of units. Printed: d ≥ O(m(ρm + 1)), the same at every depth. "
        "Right: d = Θ(m(ρm + 1)/R).",
    )


@claim("Lemma 1, Eqs. 13 to 17", f"equality: {EQUAL}")
def _lemma1(readings: Readings) -> Judgement:
    """A unit with norms √(8d)/ρ moves one column by d and keeps the others."""
    errors = torch.stack([stacked(readings, name, one_step) for name in ("error", "norm_error")], dim=1)
    return judge_equality(errors, "Equations (13) and (14), points as near to each other as the lemma allows.")


@claim("Lemma 2, Eq. 19", "below the bounds")
def _lemma2(readings: Readings) -> Judgement:
    """Paths that keep the columns apart are at most (ρ(m − 1)/2 + 1)π long and take at most s units."""
    lengths, bounds = (by_units(readings, name)[1] for name in ("longest_path", "path_bound"))
    counts, allowed = by_units(readings, "allowed_units")
    shares = torch.cat([lengths / bounds, torch.tensor(counts, dtype=torch.float64) / allowed], dim=1)
    sentence = "Longest path over π(1 + ρ(m − 1)/2), and units over s of equation (19); the largest share."
    return decide(over_seeds(shares), Band(-math.inf, 1.0), sentence)


@claim("Assumption 2", "ρ > 0")
def _shared_labels(readings: Readings) -> Judgement:
    """There is a minimum distance ρ between all samples and all labels; a little noise gives it."""
    distances = stacked(readings, "separation", shared_labels)
    loss, bound = (stacked(readings, name, shared_labels) for name in ("loss", "loss_bound"))
    smallest = float(stacked(readings, "surrogate_separation", shared_labels).min())
    m, d = (values(readings, name, shared_labels)[0] for name in ("samples", "width"))
    return decide_correction(
        (over_seeds(distances), Band(torch.finfo(torch.float64).eps, math.inf)),
        (over_seeds(loss / bound), Band(-math.inf, 1.0)),
        f"Printed: a distance ρ > 0 between all samples and labels; with {m} samples and {d} labels ρ = 0, and "
        "networks with small weights are injective, so none fits. Right: targets within ε of the labels can be fitted, "
        f"with a loss of at most ε²/2 (the number: loss over ε²/2; ρ ≥ {smallest:.2g} then).",
    )


CLAIMS = (_fit, _norm_law, _norm_bound, _step, _lemma1, _lemma2, _shared_labels)


def figures(readings: Readings) -> tuple[Figure, ...]:
    """The norms against the number of units."""
    counts, norms = by_units(readings, "largest_norm")
    constants, separations = (by_units(readings, name)[1] for name in ("norm_constant", "separation"))
    m = values(readings, "samples", construction)[0]
    law = constants.mean() / torch.tensor(counts).sqrt()
    bound = [small_weights.norm_bound(R, m, float(separations.mean())) for R in counts]
    words = ("norms", "Theorem 1: the explicit network's weights shrink with depth")
    caption = (
        f"The largest Frobenius norm among all matrices of the network that maps {m} random unit vectors to their "
        "labels falls like one over the square root of the number of units, below the bound."
    )
    marks = (
        *statistics.curve(counts, norms, "constructed networks", 0),
        Line(numbers(counts), numbers(law), "limit of small steps, ∝ 1/√R", colour=INK, dashed=True),
        Line(numbers(counts), numbers(bound), "bound (6), corrected", dashed=True),
    )
    return (statistics.figure(words, caption, ("residual units R", "largest ‖W‖_F"), marks, log="xy"),)


_DEVIATIONS = (
    "The theorem gives no example: here 6 random unit vectors of width 10, each with a label of its own.",
    "The n of equations (6), (7) and (20) is the number of units R, and assumption 1's n ≥ 3 is d_x ≥ 3, which lemma 2 "
    "needs: shortcuts have length 2 throughout.",
    "Samples that share labels are moved by units with two hidden neurons, at twice the norms: the printed unit "
    "magnifies rounding exponentially where points are near to each other.",
)

ITEMS = (Item("thm1", "the explicit small-weight network", runs, CLAIMS, figures, statistics.raw_tables, _DEVIATIONS),)
