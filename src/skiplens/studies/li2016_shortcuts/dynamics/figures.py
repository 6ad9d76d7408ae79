"""Figures 5 and 6: eigenvalues and index against the loss, gradient and index against the epoch."""

from collections.abc import Sequence

from skiplens.figures import Figure, Line
from skiplens.figures.figure import Mark, numbers
from skiplens.readings import Measurement
from skiplens.studies.curves import curve
from skiplens.studies.li2016_shortcuts.dynamics.curves_at_losses import at_losses
from skiplens.studies.selection import chosen

FAMILIES = ("xavier", "orthogonal", "1-shortcut", "2-shortcut")


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
            losses, found = at_losses(readings, family, quantity)
            marks += curve(losses, found.log10(), f"{family}, {word}", number, dashed)
    caption = (
        "Whole lines are maxima, dashed ones 10th percentiles; their distance is the condition number. It is smallest "
        "for 2-shortcut networks, most of all while the loss is large."
    )
    return _against_loss("eigenvalues_at_losses", "Figure 5: |eigenvalues|", caption, "log10 |λ|", marks)


def _conditions(readings: Sequence[Measurement]) -> Figure:
    marks: list[Mark] = []
    for number, family in enumerate(FAMILIES):
        losses, found = at_losses(readings, family, "condition_number")
        marks += curve(losses, found.log10(), family, number)
    caption = "The ratio of the two curves of each kind of network. Near the lowest loss all rise without bound."
    title, label = "Figure 5: condition numbers", "log10(|λ|max / |λ|(0.1))"
    return _against_loss("condition_numbers_at_losses", title, caption, label, marks)


def _indices(readings: Sequence[Measurement]) -> Figure:
    marks: list[Mark] = []
    for number, family in enumerate(FAMILIES):
        marks += curve(*at_losses(readings, family, "index"), family, number)
    caption = "The index of 2-shortcut networks is below that of orthogonal ones, and drops at the beginning."
    return _against_loss("index_at_losses", "Figure 6 left: share of negative eigenvalues", caption, "index", marks)


def _against_loss(name: str, title: str, caption: str, y_label: str, marks: Sequence[Mark]) -> Figure:
    return Figure(
        name=name,
        title=f"{title} at different losses",
        caption=f"{caption} Training goes from right to left. Bands are one standard deviation over runs.",
        x_label="loss",
        y_label=y_label,
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
        y_label="gradient over its maximum, 2 × index",
        marks=(
            Line(epochs, numbers(gradient / gradient.max()), f"gradient (maximum {float(gradient.max()):.3f})"),
            Line(epochs, numbers(2 * run["index"]), "2 × index"),
        ),
    )
