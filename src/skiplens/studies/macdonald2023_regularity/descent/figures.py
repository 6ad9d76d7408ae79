"""Theorem 2.3: losses and bounds against the number of steps."""

from collections.abc import Sequence

import torch

from skiplens.figures import Figure, Line
from skiplens.figures.bundle import bundle
from skiplens.figures.figure import Mark, numbers
from skiplens.figures.style import colour
from skiplens.readings import Measurement
from skiplens.studies.macdonald2023_regularity.descent.measure import STEPS
from skiplens.studies.selection import stacked

SHOWN = (0, 2, 4)
"""Of the step sizes."""


def thm2_3(readings: Sequence[Measurement]) -> tuple[Figure, ...]:
    """Least squares, and a network."""
    return (
        _figure(readings, "descent_quadratic", "least squares, 10 equations, 30 unknowns"),
        _figure(readings, "descent_network", "a residual network, square cost", " Its constants are worst cases."),
    )


def _figure(readings: Sequence[Measurement], measure: str, what: str, remark: str = "") -> Figure:
    loss, bound = (stacked(readings, name, measure) for name in ("loss", "bound"))
    loss, bound = loss / loss[:, :, :1], bound / bound[:, :, :1]
    x = torch.arange(loss.shape[2], dtype=torch.float64)
    marks: list[Mark] = []
    for index, place in enumerate(SHOWN):
        marks += bundle(x, loss[:, place], f"η = {STEPS[place]}/β", index, logarithmic=True)
        mean = bound[:, place].log().mean(0).exp()
        marks.append(Line(numbers(x), numbers(mean), f"bound, η = {STEPS[place]}/β", True, colour(index)))
    return Figure(
        name=measure.removeprefix("descent_"),
        title=f"Theorem 2.3: {what}",
        caption="Losses over the first loss (mean and range over draws) stay below the bound of equation (4), dashed, "
        f"at every step size below 2/β.{remark}",
        x_label="steps of gradient descent",
        y_label="loss over first loss",
        marks=tuple(marks),
        y_log=True,
    )
