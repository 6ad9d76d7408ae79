"""What several items share: the digits, the kinds of networks, deviations, and what counts as equal."""

import math
from dataclasses import dataclass
from functools import cache
from typing import Literal

import torch
from torch import Tensor

from skiplens.base import DataError, Float
from skiplens.data import fit_whitening, get, sample
from skiplens.linalg.second_moments import SecondMoments, second_moments
from skiplens.papers.li2016_shortcuts.hessian.linear import LinearUnit, plain_units, shortcut_units
from skiplens.papers.statistics import Band, decide, over_seeds
from skiplens.papers.study import Judgement
from skiplens.zoo.weight_laws import Law, orthogonal_weights, scaled, xavier_weights

DEPTH = "Depth is the number of weight matrices; where the paper counts layers of neurons it is one more."

QUANTILE = (
    "The 10th percentile of the |eigenvalues| is the one of nearest rank: the paper gives no rule, and at zero weights "
    "the percentile sits on a jump."
)

SIGNS = (
    "Principal components have the sign that makes their entry of largest magnitude positive; the paper gives no rule, "
    "and the shortcut ties component i to class i."
)

SMOKE_IMAGES = (
    "The smoke preset takes the 2,000 embedded MNIST digits instead of the 60,000, so it decides few claims about data."
)

DIGITS = (DEPTH, QUANTILE, SIGNS, SMOKE_IMAGES)  # what deviates wherever a linear network sees the digits

Source = Literal["sample", "mnist"]  # the 2,000 embedded digits, which are the first of MNIST, or all 60,000

WIDTH = 10  # of the networks: as many components as classes, since the shortcuts tie them to each other
FamilyName = Literal["xavier", "orthogonal", "1-shortcut", "2-shortcut", "3-shortcut"]


@cache
def whitened_digits(source: Source = "mnist", samples: int | None = None) -> tuple[Tensor, Tensor]:
    """The first `samples` images (all if not given), whitened by themselves, and one-hot labels; kept for next time."""
    try:
        digits = sample() if source == "sample" else get("mnist")
    except DataError as error:
        raise DataError(f"{error}\nOr fetch it: skiplens data get mnist. Then give the same command again.") from error
    images, labels = digits.images[:samples], digits.labels[:samples]
    return fit_whitening(images, WIDTH)(images), torch.nn.functional.one_hot(labels, WIDTH).double()


@cache
def digit_moments(source: Source = "mnist", samples: int | None = None) -> SecondMoments:
    """The second moments of the whitened digits; kept for the next call."""
    return second_moments(*whitened_digits(source, samples))


@dataclass(frozen=True)
class Family:
    """Networks with the same shortcuts and the same law of the initial weights."""

    law: Law
    branch_depth: int = 1
    shortcut: bool = False

    def start(self, depth: int, generator: torch.Generator) -> Float[Tensor, "matrices width width"]:
        """Initial weights W_1, …, W_D, drawn in this order."""
        return torch.stack([self.law((WIDTH, WIDTH), generator) for _ in range(depth)])

    def units(self, weights: Float[Tensor, "matrices width width"]) -> tuple[LinearUnit, ...]:
        """The linear network with these weights."""
        return shortcut_units(weights, self.branch_depth) if self.shortcut else plain_units(weights)


_NEAR_ZERO = scaled(xavier_weights, 0.01)

FAMILIES: dict[FamilyName, Family] = {
    "xavier": Family(xavier_weights),
    "orthogonal": Family(orthogonal_weights),
    "1-shortcut": Family(_NEAR_ZERO, 1, shortcut=True),
    "2-shortcut": Family(_NEAR_ZERO, 2, shortcut=True),
    "3-shortcut": Family(_NEAR_ZERO, 3, shortcut=True),
}

ROUNDING = 1e-9
"""An equality of float64 numbers that missed by less than this holds; what is wrong is wrong by much more."""

EQUAL = f"log10 error ≤ {math.log10(ROUNDING):g}"
"""What is asked of an equality, in the unit of the number that is shown."""


def judge_equality(errors: Tensor, sentence: str) -> Judgement:
    """Whether relative errors (replicates, …) are rounding; their logarithms are compared, since they span decades."""
    found = over_seeds(errors.abs().clamp(min=1e-17).log10())  # which stands for errors that are exactly zero
    explanation = (
        f"{sentence} The number is the log10 of the largest relative error. We count errors up to the tolerance, "
        f"{ROUNDING:g} or a log10 of {math.log10(ROUNDING):g}, as rounding."
    )
    return decide(found, Band(-math.inf, math.log10(ROUNDING), ROUNDING), explanation)


def scalars(**values: float) -> dict[str, Tensor]:
    """The numbers as float64 tensors, whatever torch's default is."""
    return {name: torch.tensor(float(value), dtype=torch.float64) for name, value in values.items()}


def printed_condition_number(slope: Float[Tensor, "width width"]) -> float:
    """Equation (9), √cond(GᵀG); from G itself, since GᵀG loses half of the digits."""
    return float(torch.linalg.cond(slope))
