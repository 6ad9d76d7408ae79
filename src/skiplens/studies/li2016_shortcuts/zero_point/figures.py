"""Theorem 2 as pictures: the blocks of the Hessian as in the paper's figure 11, and condition numbers on digits."""

from collections.abc import Sequence

from skiplens.figures import Figure, Heat
from skiplens.figures.figure import Mark, numbers
from skiplens.readings import Measurement
from skiplens.studies.curves import curve
from skiplens.studies.selection import against, stacked, values

_CAPTIONS = {
    1: "One matrix a unit: B on the diagonal of blocks, A below it, Aᵀ above it; every two units are coupled.",
    2: "Two matrices a unit (the paper's figure 11): only the two matrices of the same unit are coupled, by A and Aᵀ.",
    3: "Three matrices a unit: the Hessian is zero.",
}


def figures(readings: Sequence[Measurement]) -> tuple[Figure, ...]:
    """The Hessians for each shortcut's length, and condition numbers against depth."""
    lengths = values(readings, "branch_depth", "picture")
    return (*(_blocks(readings, length) for length in lengths), _conditions(readings))


def _blocks(readings: Sequence[Measurement], branch_depth: int) -> Figure:
    H = stacked(readings, "hessian", "picture", branch_depth=branch_depth)[0]
    return Figure(
        name=f"hessian_{branch_depth}_shortcut",
        title=f"Theorem 2: Hessian at zero, {branch_depth}-shortcut",
        caption=f"{_CAPTIONS[branch_depth]} Linear network of 3 units and width 3 on random data.",
        x_label="parameter",
        y_label="parameter",
        marks=(Heat(tuple(numbers(row) for row in H), "second derivative"),),
    )


def _conditions(readings: Sequence[Measurement]) -> Figure:
    marks: list[Mark] = []
    for number, n in enumerate((1, 2)):
        depths, found = against(readings, "condition_number", "depth", "digit_spectrum", branch_depth=n)
        marks += curve(depths, found, f"{n}-shortcut", number)
    return Figure(
        name="condition_numbers",
        title="Theorem 2: condition number at zero on digits",
        caption="Two matrices a unit: the same at every depth. One matrix a unit: linear growth. Bands are one "
        "standard deviation over random signs of the principal components.",
        x_label="depth (weight matrices)",
        y_label="|λ|max over the 10 % quantile of |λ|",
        marks=tuple(marks),
    )
