"""Equalities that hold up to rounding."""

import math

from skiplens.core.axes import Tensor
from skiplens.studies.claim import Judgement
from skiplens.studies.statistics import Band, decide, over_seeds

ROUNDING = 1e-9
"""An equality of float64 numbers that missed by less than this holds; what is wrong is wrong by much more."""

EQUAL = f"log10 error ≤ {math.log10(ROUNDING):g}"
"""What is asked of an equality, in the unit of the number that is shown."""

_SMALLEST = 1e-17  # where the logarithm of an error that is exactly zero is put


def judge_equality(errors: Tensor, sentence: str) -> Judgement:
    """Whether errors (replicates, …) are rounding; they are compared by their logarithms, since they span decades.

    Args:
        errors: Relative errors of both sides.
        sentence: What they are the errors of.
    """
    found = over_seeds(errors.abs().clamp(min=_SMALLEST).log10())
    explanation = (
        f"{sentence} The number is the log10 of the largest relative error. We count errors up to the tolerance, "
        f"{ROUNDING:g} or a log10 of {math.log10(ROUNDING):g}, as rounding."
    )
    return decide(found, Band(-math.inf, math.log10(ROUNDING), ROUNDING), explanation)
