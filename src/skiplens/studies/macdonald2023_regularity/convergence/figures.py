"""Theorem 5.1: trapped runs, the proof's bounds, descents from any start, step sizes on digits."""

from collections.abc import Sequence

import torch

from skiplens.figures import Figure, Line
from skiplens.figures.bundle import bundle
from skiplens.figures.figure import Mark, Reference, numbers
from skiplens.figures.style import INK, colour
from skiplens.readings import Measurement
from skiplens.studies.macdonald2023_regularity.convergence.settings import START_SCALES, STEP_FACTORS
from skiplens.studies.selection import chosen, stacked


def thm5_1(readings: Sequence[Measurement]) -> tuple[Figure, ...]:
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
