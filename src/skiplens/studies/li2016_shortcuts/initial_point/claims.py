"""What figure 4 says about condition numbers at the start, and what the exact Hessians show."""

import math
from collections.abc import Sequence
from functools import partial

import torch

from skiplens.core.axes import Float, Tensor
from skiplens.readings import Measurement
from skiplens.studies.claim import Claim, Judgement
from skiplens.studies.selection import against, stacked
from skiplens.studies.statistics import Band, decide, over_seeds

CONSTANT = 0.005
"""Of log10 of the 2-shortcut networks' condition number, at every depth."""

FIRST, DOUBLING = 8, Band(1.9, 2.3)
"""The factor of a condition number that grows linearly, when the depth doubles from 8 on."""

ALIKE = 0.1
"""Between log10 of two condition numbers that are called similar."""

LIMIT = 1e13
"""Beyond it the 10 % quantile is rounding: float64 tells eigenvalues apart down to about 1e-15 of the largest."""


def log_conditions(
    readings: Sequence[Measurement], family: str
) -> tuple[list[int], Float[Tensor, "replicates depths"]]:
    """The depths, and log10 of the condition numbers (replicates, depths)."""
    depths, found = against(readings, "condition_number", "depth", "initial_spectrum", family=family)
    return depths, found.clamp(max=LIMIT).log10()


def judge_constant(readings: Sequence[Measurement]) -> Judgement:
    """2-shortcut networks against equation (9)."""
    _, found = log_conditions(readings, "2-shortcut")
    expected = math.log10(float(stacked(readings, "zero_condition_number", "initial_spectrum")[0]))
    sentence = f"log10 of the condition number minus that of equation (9), {expected:.4f}; worst depth."
    return decide(over_seeds(found - expected), Band.around(0.0, CONSTANT), sentence)


def judge_linear_growth(readings: Sequence[Measurement], family: str) -> Judgement:
    """How the condition number grows when the depth doubles."""
    depths, found = log_conditions(readings, family)
    doublings = [D >= FIRST for D in depths[:-1]]
    if not any(doublings):
        return Judgement("not attempted", explanation=f"No network is deeper than {FIRST}. Use a larger preset.")
    factors = (found.diff(dim=1) * math.log(10)).exp()[:, doublings]
    sentence = (
        f"Factor of the condition number for each doubling of the depth from {FIRST} on; worst depth. Any factor "
        f"that stays above 1 goes to infinity; we ask for linear growth, {DOUBLING.low:g} to {DOUBLING.high:g}."
    )
    return decide(over_seeds(factors), DOUBLING, sentence)


def judge_xavier(readings: Sequence[Measurement]) -> Judgement:
    """How the condition number of Xavier networks grows per layer."""
    depths, found = log_conditions(readings, "xavier")
    chosen = [D >= 4 for D in depths]
    per_layer = found[:, chosen] / torch.tensor(depths, dtype=torch.float64)[chosen]
    sentence = (
        f"log10 of the condition number over the depth, from depth 4 on; smallest. (Above {LIMIT:g} it is rounding.) "
        "We ask for at least 0.3."
    )
    return decide(over_seeds(per_layer), Band(0.3, math.inf), sentence)


def judge_slower(readings: Sequence[Measurement]) -> Judgement:
    """Orthogonal against Xavier."""
    _, orthogonal = log_conditions(readings, "orthogonal")
    _, xavier = log_conditions(readings, "xavier")
    sentence = "log10 of Xavier's condition number minus that of orthogonal networks; smallest over the depths."
    return decide(over_seeds(xavier - orthogonal), Band(0.0, math.inf), sentence)


def judge_alike(readings: Sequence[Measurement]) -> Judgement:
    """1-shortcut networks against orthogonal ones."""
    _, orthogonal = log_conditions(readings, "orthogonal")
    _, shortcut = log_conditions(readings, "1-shortcut")
    sentence = "log10 of the 1-shortcut networks' condition number minus that of orthogonal ones; worst depth."
    return decide(over_seeds(shortcut - orthogonal), Band.around(0.0, ALIKE), sentence)


CLAIMS = (
    Claim(
        "two_shortcut",
        "2-shortcut linear networks have constant condition numbers.",
        "Figure 4",
        "as at zero, Eq. 9",
        judge_constant,
    ),
    Claim(
        "orthogonal",
        "With orthogonal initialisation the initial condition number goes to infinity with depth.",
        "Figure 4, Section 5.1",
        "→ ∞: factor > 1 a doubling",
        partial(judge_linear_growth, family="orthogonal"),
    ),
    Claim(
        "one_shortcut",
        "The condition number of 1-shortcut networks grows unboundedly with depth.",
        "Section 2",
        "→ ∞: factor > 1 a doubling",
        partial(judge_linear_growth, family="1-shortcut"),
    ),
    Claim(
        "xavier",
        "With Xavier initialisation the initial condition number goes to infinity with depth.",
        "Figure 4, Section 5.1",
        "→ ∞: log10 a layer > 0",
        judge_xavier,
    ),
    Claim(
        "orthogonal_slower",
        "The condition number grows slower with orthogonal than with Xavier initialisation.",
        "Section 5.1",
        "> 0",
        judge_slower,
    ),
    Claim(
        "one_shortcut_like_orthogonal",
        "1-shortcut networks are similar to linear networks with orthogonal initialisation.",
        "Section 5",
        "difference 0",
        judge_alike,
    ),
)
