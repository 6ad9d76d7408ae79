"""Theorem 5.1 as printed is false: networks that meet every hypothesis, and gradient descent that does not arrive.

A network of three weights is trapped above its infimum. One normalised weight, which can be followed for a million
steps, shows where the proof fails: its rate is λ(DF), which it takes for σ(DF) = √λ, and Σ λ converges.
"""

import math
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from skiplens.base import Float, InvalidInputError, option
from skiplens.jacobians.systems.affine import Affine
from skiplens.jacobians.systems.costs import Cost, Logistic, SquareCost
from skiplens.jacobians.systems.elementwise import Elementwise, Nonlinearity, Residual, SkipMap
from skiplens.jacobians.systems.layer import Composition, DataBound
from skiplens.jacobians.systems.parameterisation import EntryNormalised, WeightNormalised
from skiplens.jacobians.systems.smoothness import SAFETY, TrainingLoss, certified_smoothness
from skiplens.papers import statistics
from skiplens.papers.macdonald2023_regularity.common import ROUNDING, arrays, descend, figure
from skiplens.papers.statistics import Band, Readings, chosen, decide, decide_correction, exactly, over_seeds, slope
from skiplens.papers.study import Judgement, claim, claims
from skiplens.plots.figure import INK, Figure, Line, Mark, Reference, bundle, colour, numbers

CostName = Literal["logistic", "square"]
INPUT, FACTOR, TARGET = 1.5, 0.95, 1.85
TRAPPED_START = (1.0, 0.2, 1.0)
"""First-layer weight, inner and outer weight of the branch: from here the better hump is never reached."""

FREE_START = (1.0, 3.0, -1.0)  # from here gradient descent does find the global minimum


def _two_humps(values: Tensor) -> Tensor:
    """(0.8 sin 4t − 0.8 t)/4: its slope 0.8 cos 4t − 0.2 is at most 1 in size."""
    return (0.8 * torch.sin(4 * values) - 0.8 * values) / 4


def _hump(angle: float) -> float:
    """The value of the nonlinearity at one of its extrema, where cos 4t = 1/4."""
    return float(_two_humps(torch.tensor(angle / 4, dtype=torch.float64)))


TWO_HUMPS = Nonlinearity("two humps", _two_humps, slope=1.0, curvature=3.2)
TRAP = INPUT + FACTOR * _hump(math.acos(0.25))  # outputs of a trapped run stay below this number
REACHABLE = INPUT - FACTOR * _hump(2 * math.pi - math.acos(0.25))  # the supremum of the outputs over all parameters


@dataclass(frozen=True, eq=False)
class CounterexampleRun:
    """Gradient descent on the counterexample; entry t speaks of the point after t steps."""

    losses: Float[Tensor, " points"]  # never increasing
    outputs: Float[Tensor, " points"]
    parameters: Float[Tensor, "points three"]  # first-layer weight, inner and outer weight
    regularity: Float[Tensor, " points"]  # λ(DF); its sum converges, which is the gap in the printed proof
    smoothness: float  # the certified β; steps are 1.9/β
    trap: float  # no loss of a trapped run is below this number
    infimum: float  # of the loss over all parameters


def counterexample_loss(cost: CostName = "logistic") -> TrainingLoss:
    """One sample, two layers of width 1: u = 1.5 en(w), z = u + 0.95 wn(b) φ(0.95 wn(a) u); every hypothesis holds."""
    data, one = torch.tensor([[INPUT]], dtype=torch.float64), WeightNormalised(1, 1, factor=FACTOR)
    branch = Composition((Affine(one, name="inner"), Elementwise(TWO_HUMPS, 1), Affine(one, name="outer")))
    block = Residual(SkipMap.truncation(1, 1), branch, name="block")
    return TrainingLoss(Composition((Affine(EntryNormalised(1, 1), name="first"), block)), data, _cost(cost))


def run_counterexample(
    cost: CostName = "logistic", start: tuple[float, float, float] = TRAPPED_START, steps: int = 2000
) -> CounterexampleRun:
    """Gradient descent with a certified step from a start that the printed theorem says leads to a global minimum."""
    loss = counterexample_loss(cost)
    smoothness = certified_smoothness(loss).finite()
    points = list(descend(loss, torch.tensor(start, dtype=torch.float64), SAFETY / smoothness, steps))
    outputs = torch.stack([loss.system(point.parameters, loss.data).squeeze() for point in points])
    gradients = torch.stack([point.gradient for point in points])
    slopes = torch.stack([loss.cost.gradient(output.reshape(1, 1)).squeeze() for output in outputs])
    best_output = TARGET if cost == "square" else REACHABLE
    trap, infimum = (float(loss.cost(torch.tensor([[z]], dtype=torch.float64))) for z in (TRAP, best_output))
    losses = torch.tensor([point.loss for point in points], dtype=torch.float64)
    parameters = torch.stack([point.parameters for point in points])
    regularity = (gradients / slopes[:, None]).square().sum(1)  # of one output, DF is one row: λ = |DF|²
    return CounterexampleRun(losses, outputs, parameters, regularity, smoothness, trap, infimum)


def _cost(name: str) -> Cost:
    if name == "logistic":
        return Logistic(torch.ones(1, dtype=torch.float64))
    if name == "square":
        return SquareCost(torch.tensor([[TARGET]], dtype=torch.float64))
    raise InvalidInputError(f"There is no counterexample for the cost {name!r}. Use 'logistic' or 'square'.")


@dataclass(frozen=True, eq=False)
class PrintedBoundRun:
    """Gradient descent on log(1 + e^(−z)), z = 1.5 w/sqrt(1 + w²), from w = 0; entry t is the point after t steps."""

    losses: Float[Tensor, " points"]
    weights: Float[Tensor, " points"]
    valid: Float[Tensor, " points"]  # the bound with λ(DF) in the rate
    printed: Float[Tensor, " points"]  # the bound with σ in place of λ = σ²: it falls below the losses
    floor: float  # the infimum of the loss: outputs stay below 1.5


def run_printed_bound(steps: int = 10_000) -> PrintedBoundRun:
    """The losses beside both bounds; written in plain numbers, so that a million steps take seconds."""
    smoothness = INPUT**2 / 4 + INPUT * 48 / (25 * math.sqrt(5))  # β = D²/4 + DD of the one layer: DD = 1.5 K2
    eta = SAFETY / smoothness
    alpha, floor = eta * (1 - smoothness * eta / 2), math.log1p(math.exp(-INPUT))
    mu = math.expm1(-floor) ** 2 / floor
    w, valid, printed = 0.0, math.log(2), math.log(2)
    rows = []
    for _ in range(steps + 1):
        s = 1 + w * w
        loss = math.log1p(math.exp(-INPUT * w * s**-0.5))
        rows.append((loss, w, valid, printed))
        sigma = INPUT * s**-1.5
        valid *= 1 - alpha * mu * sigma**2
        printed *= 1 - alpha * mu * sigma
        w += eta * -math.expm1(-loss) * sigma  # the gradient is −(1 − e^(−loss)) dz/dw
    losses, weights, valids, printeds = torch.tensor(rows, dtype=torch.float64).T
    return PrintedBoundRun(losses, weights, valids, printeds, floor)


def largest_weight_bound(loss: TrainingLoss, start: Float[Tensor, " params"], step: float, steps: int) -> float:
    """An upper bound of max |w_ij| of the first layer after `steps` steps of gradient descent.

    Each weight has |∂ℓ/∂w| <= C ε (ε + w²)^(−3/2) with C = G · Π gains behind · largest row norm of X, so that w⁴ grows
    by at most (1 + η C ε)⁴ − 1 a step. Then λ(DF) may fall like t^(−3/2), which can be summed: no convergence follows.
    """
    system, bound = loss.system, DataBound.of_data(loss.data)
    first = system.layers[0] if isinstance(system, Composition) else system
    if not isinstance(first, Affine) or not isinstance(first.parameterisation, EntryNormalised):
        raise InvalidInputError(
            f"The first layer {first.name!r} is not entry-normalised; the bound is about layers en(W) X. "
            "Use Affine(EntryNormalised(outputs, inputs)) as the first layer."
        )
    behind = system.certificates(bound)[1:] if isinstance(system, Composition) else []
    gains = math.prod(certificate.gain for certificate in behind)
    G = loss.cost.gradient_bound(system.certificate(bound).size)
    C = G * gains * float(loss.data.norm(dim=1).max()) * first.parameterisation.factor
    epsilon, largest = first.parameterisation.epsilon, float(start[: first.parameters].abs().max())
    begin = max(largest, 1 + step * C * epsilon**-0.5)
    return (begin**4 + ((1 + step * C * epsilon) ** 4 - 1) * steps) ** 0.25


class Trapped(statistics.ReplicateSettings):
    """The counterexample, near the start from which it is trapped or at the one from which it arrives."""

    cost: CostName = option("logistic", "what is minimised")
    start: Literal["trapped", "free"] = option("trapped", "where descent begins")
    spread: float = option(0.02, "deviation of the starts of replicates")
    iterations: int = option(2000, "steps of gradient descent")


class OneLayer(statistics.ReplicateSettings):
    """One normalised weight, for which both bounds of the proof can be followed for a million steps."""

    iterations: int = option(1_000_000, "steps of gradient descent")


def trapped_descent(settings: Trapped) -> dict[str, Tensor]:
    """Losses and outputs of the counterexample at some steps, the trap and the infimum."""
    centre = torch.tensor(TRAPPED_START if settings.start == "trapped" else FREE_START, dtype=torch.float64)
    w, a, b = (centre + settings.spread * torch.randn(3, dtype=torch.float64, generator=settings.stream())).tolist()
    run = run_counterexample(settings.cost, (w, a, b), settings.iterations)
    places = some_steps(settings.iterations)
    return {
        "step": places,
        "loss": run.losses[places],
        "output": run.outputs[places],
        "sum_of_lambda": run.regularity.cumsum(0)[places],
        "trap": torch.tensor(run.trap, dtype=torch.float64),
        "infimum": torch.tensor(run.infimum, dtype=torch.float64),
    }


def one_layer_bounds(settings: OneLayer) -> dict[str, Tensor]:
    """Loss, weight, both bounds and σ(DF) of one normalised weight at some steps; nothing is drawn."""
    run, places = run_printed_bound(settings.iterations), some_steps(settings.iterations)
    return {
        "step": places,
        "loss": run.losses[places],
        "weight": run.weights[places],
        "valid": run.valid[places],
        "printed": run.printed[places],
        "sigma": INPUT * (1 + run.weights[places].square()) ** -1.5,
        "floor": torch.tensor(run.floor, dtype=torch.float64),
    }


def some_steps(iterations: int) -> Tensor:
    """Numbers of steps from 0 to all, equally spaced in their logarithm."""
    powers = torch.logspace(0, torch.tensor(float(iterations)).log10().item(), 61, dtype=torch.float64)
    return torch.cat([torch.zeros(1, dtype=torch.int64), powers.round().long()]).unique()


ARRIVED = 0.01
"""A loss that has converged is within this of the infimum; the trap is 0.044 (logistic) and 0.026 (square) above."""

EXPONENT = 0.05


def _any_start(readings: Readings, cost: str) -> Judgement:
    """The last loss above the infimum, and the last output, of runs that begin near the trap."""
    trapped = {"cost": cost, "start": "trapped"}
    loss, output, infimum = arrays(readings, "trapped_descent", "loss", "output", "infimum", **trapped)
    above = loss[:, -1] - infimum
    sentence = (
        f"{cost.capitalize()} cost. Printed: the loss tends to its infimum from any start; here it stays "
        f"{above.min():.4f} or more above it. Right: it may be trapped. An output between {INPUT} "
        f"and {TRAP:.4f} (shown: the last ones) never leaves this interval, although larger ones have less loss."
    )
    printed, right = (over_seeds(above), Band.around(0.0, ARRIVED)), (over_seeds(output[:, -1]), Band(INPUT, TRAP))
    return decide_correction(printed, right, sentence)


@claim("Abstract, Section 5", "infimum 0")
def _infimum(readings: Readings) -> Judgement:
    """Deep networks are trained to global optima that exist only at infinity, as for cross-entropy."""
    reading = chosen(readings, "one_layer_bounds")[0]
    last, floor = reading["loss"][-1], reading["floor"]
    sentence = (
        "Cross-entropy of one sample after a million steps. Printed: its optimum is at infinity, where it is 0. Right: "
        f"normalised layers bound the outputs, so it has a floor, here {floor:.6f}; shown is the distance to it."
    )
    right = exactly(last - floor), Band(0.0, ARRIVED, ARRIVED)
    return decide_correction((exactly(last), Band.around(0.0, ARRIVED)), right, sentence)


@claim("Proof of Theorem 5.1, Eq. 37", "loss over bound at most 1")
def _printed_bound(readings: Readings) -> Judgement:
    """The loss obeys the bound with rates proportional to σ(D en)."""
    reading = chosen(readings, "one_layer_bounds")[0]
    printed, valid = ((reading["loss"] / reading[name])[1:].max() for name in ("printed", "valid"))
    sentence = (
        f"Largest loss over bound in a million steps. Printed: rates μ_t proportional to σ(D en): {printed:.3f}, so "
        "the loss crosses the bound. Right: to λ = σ², whose bound it keeps (shown); but Σ λ converges, and nothing "
        "follows."
    )
    band = Band(-math.inf, 1 + ROUNDING, ROUNDING)
    return decide_correction((exactly(printed), band), (exactly(valid), band), sentence)


@claim("Proof of Theorem 5.1, Eq. 44", "exponent at least −0.75")
def _rate_exponent(readings: Readings) -> Judgement:
    """The rates fall no faster than t^(−3/4)."""
    found = exactly(_last_decade(readings, "sigma") * 2)
    sentence = (
        "Exponent with which λ(DF) falls over the last decade of steps. Printed: μ_t is at least Γ t^(−3/4), so that "
        "Σ μ_t diverges. Right: t^(−3/2), which can be summed."
    )
    printed = found, Band(-0.75 - EXPONENT, math.inf, EXPONENT)
    return decide_correction(printed, (found, Band.around(-1.5, EXPONENT)), sentence)


@claim("Proof of Theorem 5.1, Eq. 43", "exponent at most 0.25")
def _weight_growth(readings: Readings) -> Judgement:
    """Weights of the first layer grow no faster than t^(1/4)."""
    sentence = "Exponent with which the weight grows over the last decade of a million steps."
    return decide(exactly(_last_decade(readings, "weight")), Band(-math.inf, 0.25 + EXPONENT, EXPONENT), sentence)


def _last_decade(readings: Readings, name: str) -> Tensor:
    """The exponent of a quantity as a power of the number of steps."""
    reading = chosen(readings, "one_layer_bounds")[0]
    step = reading["step"]
    late = step >= step[-1] // 10
    return slope(step[late].double().log().tolist(), reading[name][late].log())


_CONVERGES = "Gradient descent converges from any initialisation to a global minimum."
_TO_ZERO = "loss − infimum tends to 0 (shown if corrected: the output)"
_ANY_START = claims(
    _any_start, *((f"any_start_{cost}", _CONVERGES, "Theorem 5.1", _TO_ZERO, cost) for cost in ("logistic", "square"))
)
CLAIMS = (*_ANY_START, _infimum, _printed_bound, _rate_exponent, _weight_growth)


def draw_trapped(readings: Readings, cost: str) -> Figure:
    """Losses from both starts."""
    marks: list[Mark] = []
    for index, (start, name) in enumerate((("trapped", "start (1, 0.2, 1)"), ("free", "start (1, 3, −1)"))):
        step, loss = arrays(readings, "trapped_descent", "step", "loss", cost=cost, start=start)
        marks += bundle(step[0, 1:].double(), loss[:, 1:], name, index)
    reading = chosen(readings, "trapped_descent", cost=cost)[0]
    levels = (Reference(float(reading["trap"]), "trap"), Reference(float(reading["infimum"]), "infimum"))
    caption = (
        "A network that meets every hypothesis. From the first start (mean and range over small changes of it) "
        "the loss never falls below the trap; from the second it falls below it, towards the infimum."
    )
    words = f"trapped_{cost}", f"Theorem 5.1: a counterexample, {cost} cost"
    return figure(words, caption, ("steps of gradient descent", "loss"), (*marks, *levels), "x")


def draw_bounds(readings: Readings) -> Figure:
    """The loss of one weight beside both bounds."""
    reading = chosen(readings, "one_layer_bounds")[0]
    step, floor = numbers(reading["step"][1:]), float(reading["floor"])
    loss, valid, printed = (numbers(reading[name][1:]) for name in ("loss", "valid", "printed"))
    words = ("printed_bound", "Proof of theorem 5.1: inequality (37) on one normalised weight")
    caption = (
        "The loss crosses the bound as it is printed, with rates proportional to σ. The right one, with λ = "
        "σ², is kept, and stops falling: it proves nothing."
    )
    marks = (
        Line(step, loss, "loss", colour=INK),
        Line(step, valid, "bound with λ", True, colour(0)),
        Line(step, printed, "bound as printed, with σ", True, colour(1)),
        Reference(floor, "floor of the loss"),
    )
    return figure(words, caption, ("steps of gradient descent", "loss"), marks, "x")


def draw_decay(readings: Readings) -> Figure:
    """σ and λ of one weight beside powers of the steps."""
    reading = chosen(readings, "one_layer_bounds")[0]
    step, sigma = reading["step"][1:].double(), reading["sigma"][1:]
    lines = []
    for index, (values, exponent, name) in enumerate(((sigma, "3/4", "σ(DF)"), (sigma.square(), "3/2", "λ(DF) = σ²"))):
        guide = values[-1] * (step / step[-1]) ** (-0.75 * (index + 1))
        lines += [
            Line(numbers(step), numbers(values), name, colour=colour(index)),
            Line(numbers(step), numbers(guide), f"t^(−{exponent})", True, colour(index)),
        ]
    words = ("decay", "Proof of theorem 5.1: how regularity decays")
    caption = "σ falls like t^(−3/4), which the proof sums to infinity. The rate is λ = σ², whose sum converges."
    return figure(words, caption, ("steps of gradient descent", "σ and λ of one normalised weight"), lines, "xy")
