"""Figures 2 and 9, from readings alone."""

from collections.abc import Sequence

import torch

from skiplens.figures import Figure, Line, Points, Reference
from skiplens.figures.figure import Mark, numbers
from skiplens.figures.style import colour
from skiplens.readings import Measurement
from skiplens.studies.curves import curve
from skiplens.studies.selection import stacked, values


def fig2(readings: Sequence[Measurement]) -> tuple[Figure, ...]:
    """Mean norm of the convolutions against epochs, one curve a depth."""
    if not readings:
        return ()
    marks: list[Mark] = []
    for number, depth in enumerate(values(readings, "depth")):
        norms = stacked(readings, "norm", depth=depth)
        marks += curve(range(norms.shape[1]), norms, f"{depth} layers", number)
    return (
        Figure(
            name="norms",
            title=f"Figure 2: average Frobenius norms, {_trained_on(readings)}",
            caption="Means over runs with one standard deviation; lines mark where the learning rate falls. At the "
            "start ‖W‖_F is √(2 inputs) on average; the stem with its three inputs weighs less in deeper networks.",
            x_label="epoch",
            y_label="mean of ‖W‖_F over convolutions",
            marks=(*marks, *_falls(readings)),
        ),
    )


def fig9(readings: Sequence[Measurement]) -> tuple[Figure, ...]:
    """Test error against depth, one series a shortcut depth."""
    if not readings:
        return ()
    depths = values(readings, "depth")
    points, lines = [], []
    for number, length in enumerate(values(readings, "shortcut_depth")):
        columns = [stacked(readings, "error", depth=depth, shortcut_depth=length) for depth in depths]
        errors = 100 * torch.stack(columns, dim=1)
        mean, spread = numbers(errors.mean(0)), numbers(errors.std(0))
        points.append(Points(numbers(depths), mean, f"shortcut depth {length}", spread))
        lines.append(Line(numbers(depths), mean, colour=colour(number)))
    return (
        Figure(
            name="errors",
            title=f"Figure 9: test error, {_trained_on(readings)}, {readings[0].setting('epochs')} epochs",
            caption="Means over runs with one standard deviation; networks of one depth have the same number of "
            "parameters.",
            x_label="depth (weight layers)",
            y_label="test error (%)",
            marks=(*points, *lines),
        ),
    )


def _falls(readings: Sequence[Measurement]) -> list[Reference]:
    """Where the learning rate falls to a tenth."""
    places = enumerate(readings[0].setting("milestones"), 2)
    return [Reference(float(epoch), f"learning rate {0.1**power:.2g}", "x") for power, epoch in places]


def _trained_on(readings: Sequence[Measurement]) -> str:
    """CIFAR-10, or what stands in for it."""
    one = readings[0]
    if one.setting("data") != "cifar10":
        return "digits in place of CIFAR-10"
    return "CIFAR-10" if one.setting("images") is None else f"{one.setting('images')} images of CIFAR-10"
