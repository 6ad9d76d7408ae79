"""Theorem 2.3: the bound of equation (4), at every step of every run."""

import math
from collections.abc import Sequence
from functools import partial

from skiplens.readings import Measurement
from skiplens.studies.claim import Claim, Judgement
from skiplens.studies.selection import stacked
from skiplens.studies.statistics import Band, decide, exactly

ROUNDING = 1e-9
"""A theorem leaves no room but rounding."""


def judge_rate(readings: Sequence[Measurement], measure: str) -> Judgement:
    """The largest quotient of loss and bound, whatever the step size."""
    loss, bound = (stacked(readings, name, measure)[:, :, 1:] for name in ("loss", "bound"))
    sentence = (
        "Largest loss over bound (4) among all steps, step sizes from 0.1/β to 1.9/β and runs: no run may exceed it."
    )
    return decide(exactly((loss / bound).max()), Band(-math.inf, 1 + ROUNDING, ROUNDING), sentence)


def judge_convexity(readings: Sequence[Measurement]) -> Judgement:
    """The smallest eigenvalue of a Hessian."""
    lowest = stacked(readings, "lowest_curvature", "descent_network").min()
    sentence = (
        "Smallest eigenvalue of the Hessian at the starts of networks whose loss has the inequality for all parameters."
    )
    return decide(exactly(lowest), Band(-math.inf, -ROUNDING, ROUNDING), sentence)


CLAIMS = (
    Claim(
        "least_squares",
        "Gradient descent with η < 2/β converges at the linear rate of equation (4): least squares.",
        "Theorem 2.3, Eq. 4",
        "loss over bound at most 1",
        partial(judge_rate, measure="descent_quadratic"),
    ),
    Claim(
        "network",
        "The same for a residual network with certified constants.",
        "Theorem 2.3, Eq. 4",
        "loss over bound at most 1",
        partial(judge_rate, measure="descent_network"),
    ),
    Claim(
        "not_convex",
        "A function with the Polyak-Łojasiewicz inequality need not be convex.",
        "Section 2.1",
        "a negative eigenvalue of the Hessian",
        judge_convexity,
    ),
)
