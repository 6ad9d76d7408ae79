"""Theorem 5.1: the statement, the steps of its proof, and what is true instead."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor

from skiplens.jacobians.systems.smoothness import descent_constant
from skiplens.papers.macdonald2023_regularity import convergence
from skiplens.papers.macdonald2023_regularity.convergence import (
    CHECKED,
    START_SCALES,
    STEP_FACTORS,
    Descents,
    DigitCertificate,
    Hypotheses,
    OneLayer,
    Repaired,
    Trapped,
)
from skiplens.papers.macdonald2023_regularity.counterexample import INPUT, TRAP
from skiplens.papers.macdonald2023_regularity.thm2_3 import STEPS, quadratics
from skiplens.papers.statistics import (
    Band,
    ReplicateSettings,
    chosen,
    decide,
    decide_correction,
    exactly,
    over_seeds,
    raw_tables,
    replicated,
    slope,
    stacked,
)
from skiplens.papers.study import Claim, Item, Judgement, Preset
from skiplens.plots.figure import INK, Figure, Line, Mark, Reference, bundle, colour, numbers
from skiplens.readings.reading import Measurement
from skiplens.sweeps.run import Run

ARRIVED = 0.01
"""A loss that has converged is within this of the infimum; the trap is 0.044 (logistic) and 0.026 (square) above."""

ROUNDING = 1e-9

EXPONENT = 0.05

MUCH_SMALLER = 100
"""Step sizes that are so many times smaller are much smaller."""

FIRST_STEPS = 20
"""Of least squares: later on, losses are rounding."""


def judge_any_start(readings: Sequence[Measurement], cost: str) -> Judgement:
    """The last loss above the infimum, and the last output, of runs that begin near the trap."""
    loss, output, infimum = (
        stacked(readings, name, "trapped_descent", cost=cost, start="trapped") for name in ("loss", "output", "infimum")
    )
    sentence = (
        f"{cost.capitalize()} cost. Printed: the loss tends to its infimum from any start; here it stays "
        f"{(loss[:, -1] - infimum).min():.4f} or more above it. Right: it may be trapped. An output between {INPUT} "
        f"and {TRAP:.4f} (shown: the last ones) never leaves this interval, although larger ones have less loss."
    )
    return decide_correction(
        (over_seeds(loss[:, -1] - infimum), Band.around(0.0, ARRIVED)),
        (over_seeds(output[:, -1]), Band(INPUT, TRAP)),
        sentence,
    )


def judge_infimum(readings: Sequence[Measurement]) -> Judgement:
    """The last loss of one normalised weight, and how far it is from its floor."""
    reading = chosen(readings, "one_layer_bounds")[0]
    last, floor = reading["loss"][-1], reading["floor"]
    sentence = (
        "Cross-entropy of one sample after a million steps. Printed: its optimum is at infinity, where it is 0. Right: "
        f"normalised layers bound the outputs, so it has a floor, here {floor:.6f}; shown is the distance to it."
    )
    return decide_correction(
        (exactly(last), Band.around(0.0, ARRIVED)), (exactly(last - floor), Band(0.0, ARRIVED, ARRIVED)), sentence
    )


def judge_printed_bound(readings: Sequence[Measurement]) -> Judgement:
    """The loss over the bound with σ, and over the bound with λ = σ²."""
    reading = chosen(readings, "one_layer_bounds")[0]
    printed, valid = ((reading["loss"] / reading[name])[1:].max() for name in ("printed", "valid"))
    sentence = (
        f"Largest loss over bound in a million steps. Printed: rates μ_t proportional to σ(D en): {printed:.3f}, so "
        "the loss crosses the bound. Right: to λ = σ², whose bound it keeps (shown); but Σ λ converges, and nothing "
        "follows."
    )
    band = Band(-math.inf, 1 + ROUNDING, ROUNDING)
    return decide_correction((exactly(printed), band), (exactly(valid), band), sentence)


def judge_exponent(readings: Sequence[Measurement]) -> Judgement:
    """With which power of the steps λ falls."""
    found = exactly(_last_decade(readings, "sigma") * 2)
    sentence = (
        "Exponent with which λ(DF) falls over the last decade of steps. Printed: μ_t is at least Γ t^(−3/4), so that "
        "Σ μ_t diverges. Right: t^(−3/2), which can be summed."
    )
    return decide_correction(
        (found, Band(-0.75 - EXPONENT, math.inf, EXPONENT)), (found, Band.around(-1.5, EXPONENT)), sentence
    )


def judge_growth(readings: Sequence[Measurement]) -> Judgement:
    """With which power of the steps a weight grows."""
    sentence = "Exponent with which the weight grows over the last decade of a million steps."
    return decide(exactly(_last_decade(readings, "weight")), Band(-math.inf, 0.25 + EXPONENT, EXPONENT), sentence)


def judge_descent_constant(readings: Sequence[Measurement]) -> Judgement:
    """The smallest decrease of a step over α |∇ℓ|², with both α."""
    decrease = stacked(readings, "decrease", "descent_quadratic")[:, :, :FIRST_STEPS]
    beta = stacked(readings, "beta", "descent_quadratic")[:, None]
    eta = torch.tensor(STEPS, dtype=torch.float64) / beta
    printed, right = eta * (1 - 2 * eta / beta), _descent_constants(beta, eta)
    worst = [(decrease / alpha[:, :, None]).amin((1, 2)) for alpha in (printed, right)]
    sentence = (
        "Smallest decrease of a step over α |∇ℓ|², least squares. Printed: α = η(1 − 2η/β). Right: α = η(1 − βη/2); "
        "the smallest quotient with it is shown."
    )
    return decide_correction(
        (over_seeds(worst[0]), Band(1.0, math.inf)),
        (exactly(worst[1].min()), Band(1 - ROUNDING, math.inf, ROUNDING)),
        sentence,
    )


def judge_descends(readings: Sequence[Measurement]) -> Judgement:
    """The largest relative change of the loss in a step."""
    loss = stacked(readings, "loss", "printed_network_descent")
    sentence = "Largest relative change of the loss in a step of 1.9/β, starts of sizes 0.1, 1.5 and 15: negative."
    return decide(exactly((loss.diff(dim=2) / loss[:, :, :-1]).max()), Band(-math.inf, 0.0), sentence)


def judge_repaired(readings: Sequence[Measurement], cost: str) -> Judgement:
    """The largest loss over the bound that was proved before the first step."""
    loss, bound, kept = (stacked(readings, name, "repaired_descent", cost=cost) for name in ("loss", "bound", "kept"))
    ratio = (loss[:, :, 1:] / bound[:, :, 1:]).max()
    sentence = (
        "Largest loss over the bound proved before the first step, which tends to 0; starts of sizes 0.1, 1.5 and 15. "
        "Every step also kept its own certificate."
    )
    worst = ratio if bool(kept.all()) else torch.tensor(math.inf)
    return decide(exactly(worst), Band(-math.inf, 1 + ROUNDING, ROUNDING), sentence)


def judge_steps(readings: Sequence[Measurement]) -> Judgement:
    """How many times the certified constant exceeds the Hessian's norm, as a power of ten."""
    certified, measured = (stacked(readings, name, "digit_certificates") for name in ("certified", "measured"))
    sentence = (
        "log₁₀ of the certified β over the Hessian's norm at the start, 32 digits: so many times smaller is the "
        f"certified step than one that fits. We ask for at least {MUCH_SMALLER} times."
    )
    return decide(over_seeds((certified / measured).log10()), Band(math.log10(MUCH_SMALLER), math.inf), sentence)


def judge_practice(readings: Sequence[Measurement]) -> Judgement:
    """How many hypotheses fail for the network of figure 2."""
    reading = chosen(readings, "hypotheses_met")[0]
    failing = torch.stack([values[0] == 0 for values in reading.arrays.values()]).sum()
    sentence = f"Hypotheses of theorems 4.5, 4.7 and 5.1 that fail for {CHECKED[0]} on 32 digits; the table lists them."
    return decide(exactly(failing), Band(1.0, math.inf), sentence)


def _last_decade(readings: Sequence[Measurement], name: str) -> Tensor:
    """The exponent of a quantity as a power of the number of steps."""
    reading = chosen(readings, "one_layer_bounds")[0]
    step = reading["step"]
    late = step >= step[-1] // 10
    return slope(step[late].double().log().tolist(), reading[name][late].log())


def _descent_constants(beta: Tensor, eta: Tensor) -> Tensor:
    rows = [[descent_constant(float(b), float(e)) for e in row] for b, row in zip(beta, eta, strict=True)]
    return torch.tensor(rows, dtype=torch.float64)


CLAIMS = (
    *(
        Claim(
            f"any_start_{cost}",
            "Gradient descent converges from any initialisation to a global minimum.",
            "Theorem 5.1",
            "loss − infimum tends to 0 (shown if corrected: the output)",
            partial(judge_any_start, cost=cost),
        )
        for cost in ("logistic", "square")
    ),
    Claim(
        "infimum",
        "Deep networks are trained to global optima that exist only at infinity, as for cross-entropy.",
        "Abstract, Section 5",
        "infimum 0",
        judge_infimum,
    ),
    Claim(
        "printed_bound",
        "The loss obeys the bound with rates proportional to σ(D en).",
        "Proof of Theorem 5.1, Eq. 37",
        "loss over bound at most 1",
        judge_printed_bound,
    ),
    Claim(
        "rate_exponent",
        "The rates fall no faster than t^(−3/4).",
        "Proof of Theorem 5.1, Eq. 44",
        "exponent at least −0.75",
        judge_exponent,
    ),
    Claim(
        "weight_growth",
        "Weights of the first layer grow no faster than t^(1/4).",
        "Proof of Theorem 5.1, Eq. 43",
        "exponent at most 0.25",
        judge_growth,
    ),
    Claim(
        "descent_constant",
        "A step decreases the loss by α |∇ℓ|².",
        "Proof of Theorem 5.1, after Eq. 37",
        "at least 1",
        judge_descent_constant,
    ),
    Claim(
        "descends",
        "The loss decreases with every step of a size below 2/β, from any start.",
        "Proof of Theorem 5.1",
        "below 0",
        judge_descends,
    ),
    *(
        Claim(
            f"repaired_{cost}",
            "Gradient descent converges from any initialisation to a global minimum: the repaired network.",
            "Theorem 5.1, with a free first layer and bounded branches",
            "loss over bound at most 1",
            partial(judge_repaired, cost=cost),
        )
        for cost in ("square", "cross_entropy")
    ),
    Claim(
        "worst_case",
        "Lipschitz bounds are worst cases, with learning rates much smaller than those of practice.",
        "Section 5, last paragraph",
        f"log₁₀ ratio > 0; we ask for ≥ {math.log10(MUCH_SMALLER):g}",
        judge_steps,
    ),
    Claim(
        "practice",
        "Practical problems typically do not satisfy the hypotheses.",
        "Section 5, last paragraph",
        "at least one fails",
        judge_practice,
    ),
)


def draw_thm5_1(readings: Sequence[Measurement]) -> tuple[Figure, ...]:
    """All figures."""
    return (
        _trapped(readings, "logistic"),
        _trapped(readings, "square"),
        _bounds(readings),
        _decay(readings),
        _printed_network(readings),
        _repaired(readings, "square"),
        _repaired(readings, "cross_entropy"),
        _steps(readings),
    )


def _trapped(readings: Sequence[Measurement], cost: str) -> Figure:
    marks: list[Mark] = []
    for index, (start, name) in enumerate((("trapped", "start (1, 0.2, 1)"), ("free", "start (1, 3, −1)"))):
        step = stacked(readings, "step", "trapped_descent", cost=cost, start=start)[0].double()
        marks += bundle(
            step[1:], stacked(readings, "loss", "trapped_descent", cost=cost, start=start)[:, 1:], name, index
        )
    reading = chosen(readings, "trapped_descent", cost=cost)[0]
    levels = (Reference(float(reading["trap"]), "trap"), Reference(float(reading["infimum"]), "infimum"))
    return Figure(
        name=f"trapped_{cost}",
        title=f"Theorem 5.1: a counterexample, {cost} cost",
        caption="A network that meets every hypothesis. From the first start (mean and range over small changes of it) "
        "the loss never falls below the trap; from the second it falls below it, towards the infimum.",
        x_label="steps of gradient descent",
        y_label="loss",
        marks=(*marks, *levels),
        x_log=True,
    )


def _bounds(readings: Sequence[Measurement]) -> Figure:
    reading = chosen(readings, "one_layer_bounds")[0]
    step = numbers(reading["step"][1:])
    names = {"valid": "bound with λ", "printed": "bound as printed, with σ"}
    bounds = [
        Line(step, numbers(reading[array][1:]), name, True, colour(index))
        for index, (array, name) in enumerate(names.items())
    ]
    return Figure(
        name="printed_bound",
        title="Proof of theorem 5.1: inequality (37) on one normalised weight",
        caption="The loss crosses the bound as it is printed, with rates proportional to σ. The right one, with λ = "
        "σ², is kept, and stops falling: it proves nothing.",
        x_label="steps of gradient descent",
        y_label="loss",
        marks=(
            Line(step, numbers(reading["loss"][1:]), "loss", colour=INK),
            *bounds,
            Reference(float(reading["floor"]), "floor of the loss"),
        ),
        x_log=True,
    )


def _decay(readings: Sequence[Measurement]) -> Figure:
    reading = chosen(readings, "one_layer_bounds")[0]
    step, sigma = reading["step"][1:].double(), reading["sigma"][1:]
    lines = []
    for index, (values, exponent, name) in enumerate(((sigma, "3/4", "σ(DF)"), (sigma.square(), "3/2", "λ(DF) = σ²"))):
        power = -0.75 * (index + 1)
        guide = values[-1] * (step / step[-1]) ** power
        lines += [
            Line(numbers(step), numbers(values), name, colour=colour(index)),
            Line(numbers(step), numbers(guide), f"t^(−{exponent})", True, colour(index)),
        ]
    return Figure(
        name="decay",
        title="Proof of theorem 5.1: how regularity decays",
        caption="σ falls like t^(−3/4), which the proof sums to infinity. The rate is λ = σ², whose sum converges.",
        x_label="steps of gradient descent",
        y_label="σ and λ of one normalised weight",
        marks=tuple(lines),
        x_log=True,
        y_log=True,
    )


def _printed_network(readings: Sequence[Measurement]) -> Figure:
    return Figure(
        name="any_start",
        title="Theorem 5.1: the paper's network, random data",
        caption="Cross-entropy falls with every step of 1.9/β, from small, usual and large parameters (mean and range "
        "over draws). How far it falls in the end is not certified.",
        x_label="steps of gradient descent",
        y_label="loss",
        marks=tuple(_starts(stacked(readings, "loss", "printed_network_descent"))),
        y_log=True,
    )


def _repaired(readings: Sequence[Measurement], cost: str) -> Figure:
    loss, bound = (stacked(readings, name, "repaired_descent", cost=cost) for name in ("loss", "bound"))
    steps = torch.arange(loss.shape[2], dtype=torch.float64)
    bounds = [
        Line(numbers(steps), numbers(bound[:, index].log().mean(0).exp()), "", True, colour(index))
        for index in range(len(START_SCALES))
    ]
    return Figure(
        name=f"repaired_{cost}",
        title=f"The repaired network, {cost.replace('_', '-')} cost",
        caption="A free first layer and bounded branches: from any start (mean and range over draws) the loss stays "
        "below a bound that is proved before the first step and tends to 0 (dashed).",
        x_label="steps of gradient descent",
        y_label="loss",
        marks=(*_starts(loss), *bounds),
        y_log=True,
    )


def _steps(readings: Sequence[Measurement]) -> Figure:
    loss = stacked(readings, "loss", "digit_certificates")
    steps = torch.arange(loss.shape[2], dtype=torch.float64)
    marks = [
        mark
        for index, factor in enumerate(STEP_FACTORS)
        for mark in bundle(steps, loss[:, index], f"{factor:,.0f} × 1.9/β", index, logarithmic=True)
    ]
    return Figure(
        name="steps",
        title="Theorem 5.1 on 32 digits: the certified step and multiples of it",
        caption="The certified step size hardly moves the loss; one ten thousand times as large still goes down "
        "(mean and range over draws).",
        x_label="steps of gradient descent",
        y_label="cross-entropy",
        marks=tuple(marks),
        y_log=True,
    )


def _starts(loss: torch.Tensor) -> list[Mark]:
    steps = torch.arange(loss.shape[2], dtype=torch.float64)
    return [
        mark
        for index, scale in enumerate(START_SCALES)
        for mark in bundle(steps, loss[:, index], f"parameters of size {scale:g}", index, logarithmic=True)
    ]


DIGIT_REPLICATES = 8
"""Of step sizes on digits, which vary more and cost little."""


@dataclass(frozen=True)
class Sizes:
    """How much of everything a preset does: replicates, and steps of each kind of descent."""

    replicates: int
    logistic: int
    square: int
    printed: int
    repaired: int
    digits: int


SIZES: dict[Preset, Sizes] = {
    "smoke": Sizes(replicates=4, logistic=900, square=1500, printed=30, repaired=15, digits=10),
    "laptop": Sizes(replicates=5, logistic=2000, square=2000, printed=500, repaired=200, digits=100),
    "paper": Sizes(replicates=10, logistic=100_000, square=100_000, printed=100_000, repaired=10_000, digits=1000),
}


def runs(preset: Preset, seed: int) -> list[Run]:
    """The counterexample, one weight, both networks, digits, hypotheses; and the least squares of theorem 2.3."""
    sizes = SIZES[preset]
    planned: list[tuple[str, ReplicateSettings, int]] = [
        ("trapped_descent", Trapped(cost="logistic", iterations=sizes.logistic), sizes.replicates),
        ("trapped_descent", Trapped(cost="square", iterations=sizes.square), sizes.replicates),
        ("trapped_descent", Trapped(cost="logistic", start="free", iterations=sizes.logistic), 1),
        ("trapped_descent", Trapped(cost="square", start="free", iterations=sizes.square), 1),
        ("one_layer_bounds", OneLayer(), 1),
        ("printed_network_descent", Descents(iterations=sizes.printed), sizes.replicates),
        ("repaired_descent", Repaired(cost="square", iterations=sizes.repaired), sizes.replicates),
        ("repaired_descent", Repaired(cost="cross_entropy", iterations=sizes.repaired), sizes.replicates),
    ]
    descents = (replicated(f"{convergence.__name__}:{name}", base, count, seed) for name, base, count in planned)
    digits = DigitCertificate(iterations=sizes.digits)
    return [
        *(run for each in descents for run in each),
        *replicated(f"{convergence.__name__}:digit_certificates", digits, DIGIT_REPLICATES, seed),
        *replicated(f"{convergence.__name__}:hypotheses_met", Hypotheses(), 1, seed),
        *quadratics(preset, seed),
    ]


ITEMS = (
    Item(
        "thm5_1",
        "convergence from any start: a counterexample, what holds, and a repaired network",
        runs,
        CLAIMS,
        draw_thm5_1,
        raw_tables,
        (
            "The theorem gives no example. Here: a network of three weights that meets every hypothesis (starts of "
            "replicates differ a little), one normalised weight, the paper's network and the repaired one with 6 "
            "features and 4 samples, and the paper's network with 784, 32, 16 and 10 units on 32 of the first 2,000 "
            "MNIST digits.",
            "The repaired network is ours: its first layer is not normalised, and a tanh stands before each branch.",
        ),
    ),
)
