"""Figures 5 and 6: eigenvalues and index against the loss, gradient and index against the epoch."""

from collections.abc import Sequence

from skiplens.figures import Figure, Line
from skiplens.figures.figure import Mark, numbers
from skiplens.readings import Measurement
from skiplens.studies.li2016_shortcuts.curves import curve
from skiplens.studies.li2016_shortcuts.dynamics.curves_at_losses import at_losses
from skiplens.studies.selection import chosen

FAMILIES = ("xavier", "orthogonal", "1-shortcut", "2-shortcut")
_LOSS = "loss"


def fig5(readings: Sequence[Measurement]) -> tuple[Figure, ...]:
    """Maxima and 10th percentiles of the |eigenvalues|, and their ratio."""
    return _eigenvalues(readings), _conditions(readings)


def fig6(readings: Sequence[Measurement]) -> tuple[Figure, ...]:
    """The index against the loss, and a single run's gradient and index."""
    return _indices(readings), _single_run(readings)


def _eigenvalues(readings: Sequence[Measurement]) -> Figure:
    marks: list[Mark] = []
    for number, family in enumerate(FAMILIES):
        for quantity, word, dashed in (("largest", "maximum", False), ("tenth", "10th percentile", True)):
            marks += _logarithms(readings, family, quantity, f"{family}, {word}", number, dashed)
    return Figure(
        name="eigenvalues_at_losses",
        title=f"Figure 5: |eigenvalues| at different losses, {_depth(readings)} matrices",
        caption="Whole lines are maxima, dashed ones 10th percentiles; their distance is the condition number. It is "
        "smallest for 2-shortcut networks, most of all while the loss is large. Training goes from right to left.",
        x_label=_LOSS,
        y_label="log10 |λ|",
        marks=tuple(marks),
        x_log=True,
    )


def _conditions(readings: Sequence[Measurement]) -> Figure:
    marks: list[Mark] = []
    for number, family in enumerate(FAMILIES):
        marks += _logarithms(readings, family, "condition_number", family, number)
    return Figure(
        name="condition_numbers_at_losses",
        title=f"Figure 5: condition numbers at different losses, {_depth(readings)} matrices",
        caption="The ratio of the two curves of each kind of network. Near the lowest loss all rise without bound. "
        "Bands are one standard deviation over runs.",
        x_label=_LOSS,
        y_label="log10(|λ|max / |λ|(0.1))",
        marks=tuple(marks),
        x_log=True,
    )


def _indices(readings: Sequence[Measurement]) -> Figure:
    marks: list[Mark] = []
    for number, family in enumerate(FAMILIES):
        marks += curve(*at_losses(readings, family, "index"), family, number)
    return Figure(
        name="index_at_losses",
        title=f"Figure 6 left: share of negative eigenvalues, {_depth(readings)} matrices",
        caption="The index of 2-shortcut networks is below the others' and drops at the beginning (training goes from "
        "right to left). Bands are one standard deviation over runs.",
        x_label=_LOSS,
        y_label="index",
        marks=tuple(marks),
        x_log=True,
    )


def _single_run(readings: Sequence[Measurement]) -> Figure:
    run = chosen(readings, "descent")[0]
    epochs, gradient = numbers(run["epoch"]), run["gradient_norm"]
    return Figure(
        name="gradient_and_index",
        title="Figure 6 right: gradient and index of a 2-shortcut network, one run",
        caption="The gradient is largest while the index drops: the network leaves the saddle along directions of "
        "negative curvature.",
        x_label="epoch",
        y_label="norm of the gradient over its maximum; twice the index",
        marks=(
            Line(epochs, numbers(gradient / gradient.max()), f"gradient (maximum {float(gradient.max()):.3f})"),
            Line(epochs, numbers(2 * run["index"]), "2 × index"),
        ),
    )


def _logarithms(
    readings: Sequence[Measurement], family: str, quantity: str, name: str, number: int, dashed: bool = False
) -> tuple[Mark, ...]:
    losses, found = at_losses(readings, family, quantity)
    return curve(losses, found.log10(), name, number, dashed)


def _depth(readings: Sequence[Measurement]) -> int:
    return int(chosen(readings, "spectra_at_losses")[0].setting("depth"))
