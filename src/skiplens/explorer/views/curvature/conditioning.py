"""The condition number against depth: where shortcuts over one, two and more matrices part ways."""

import math
from dataclasses import dataclass, replace
from functools import lru_cache

from torch import Tensor

from skiplens.explorer.views.curvature.networks import Setting
from skiplens.figures import Figure, Line, Reference
from skiplens.figures.figure import Mark, numbers
from skiplens.figures.style import colour
from skiplens.theory.shortcut_hessian import listed_spectrum

DEPTHS = {0: (2, 4, 8, 20), 1: (1, 2, 4, 8, 20), 2: (2, 4, 8, 20), 3: (3, 6, 12, 21), 4: (4, 8, 12, 20)}
"""Weight matrices that make whole units, by the matrices that a shortcut jumps over."""

BEYOND_ROUNDING = 1e13
"""Above this the smaller eigenvalues of float64 are noise."""


@dataclass(frozen=True)
class Shape:
    """What matters of a spectrum: its extremes, how far they are apart, and how many directions go down."""

    largest: float
    smallest: float
    condition_number: float
    index: float


def shape_of(eigenvalues: Tensor) -> Shape:
    """Extremes, condition number (infinite beyond rounding, NaN of a zero matrix) and share of negative eigenvalues."""
    spectrum = listed_spectrum(eigenvalues)
    condition = spectrum.condition_number
    condition = math.inf if condition > BEYOND_ROUNDING else condition
    return Shape(spectrum.largest, spectrum.smallest, condition, spectrum.index_beyond_rounding)


def condition_against_depth(setting: Setting) -> Figure:
    """Condition numbers of networks of many depths, at zero and where training starts."""
    return Figure(
        name="condition_against_depth",
        title="Condition number against depth",
        caption="How unequal the curvatures are: gradient descent needs about so many steps. Shortcuts over two "
        "matrices start with the same condition number at every depth, over one it grows with depth, and over three "
        "or more the Hessian at zero vanishes: there is no dashed line. Lines end where numbers are beyond rounding.",
        x_label="weight matrices",
        y_label="condition number",
        marks=(
            *curves(replace(setting, branch_depth=0, depth=0)),
            Reference(float(setting.matrices), f"{setting.matrices} matrices", axis="x"),
        ),
        x_log=True,
        y_log=True,
    )


@lru_cache(maxsize=64)
def curves(setting: Setting) -> tuple[Mark, ...]:
    """The marks of all shortcut depths; depth and branch depth of `setting` do not matter."""
    marks: list[Mark] = []
    for branch_depth, depths in DEPTHS.items():
        if branch_depth == 0 and setting.initialisation == "near_zero":
            continue  # products of many small matrices: a plain network does not start there
        settings = [replace(setting, branch_depth=branch_depth, depth=depth) for depth in depths]
        name = f"over {branch_depth}" if branch_depth else "no shortcuts"
        shade = colour(branch_depth - 1)
        at_start = numbers([shape_of(each.eigenvalues_at_start).condition_number for each in settings])
        if branch_depth in (1, 2):
            at_zero = numbers([shape_of(each.eigenvalues_at_zero).condition_number for each in settings])
            marks.append(Line(numbers(depths), at_zero, f"{name}, at zero", dashed=True, colour=shade))
        marks.append(Line(numbers(depths), at_start, f"{name}, start", colour=shade))
    return tuple(marks)
