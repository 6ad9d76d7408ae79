"""Figure 1: a skip shifts the singular values upwards; and by how much, from free probability."""

import math
from collections.abc import Sequence
from functools import partial

import torch

from skiplens.core.axes import Tensor
from skiplens.readings import Measurement
from skiplens.studies.claim import Claim, Judgement
from skiplens.studies.selection import stacked
from skiplens.studies.statistics import Band, decide, over_seeds
from skiplens.theory.random_singular_values import SingularValueLaw

SCALE = math.sqrt(1 / 3)
"""PyTorch's linear layers: entries of variance scale²/n."""

LAWS = {name: SingularValueLaw(SCALE, has_skip=name == "skip") for name in ("chain", "skip")}

DEVIATIONS = {"chain": (0.0003, 0.004, 0.0016), "skip": (0.0010, 0.0013, 0.0021)}
"""Standard deviations over draws at n = 500 of the mean, the mean logarithm and the median."""

DEVIATIONS_ALLOWED = 5
QUANTILES = (0.01, 0.1, 0.25, 0.5, 0.75, 0.9, 0.99)


def judge_shift(readings: Sequence[Measurement]) -> Judgement:
    """Quantiles with the skip minus those without."""
    chain, skip = (_quantiles(stacked(readings, name)) for name in ("chain", "skip"))
    sentence = "Quantiles (1 % to 99 %) of the singular values of I + A minus those of A; the smallest difference."
    return decide(over_seeds(skip - chain), Band(0.0, math.inf), sentence)


def judge_law(readings: Sequence[Measurement], name: str) -> Judgement:
    """Mean, mean logarithm and median against the limiting law, in units of the tolerance."""
    tolerances = torch.tensor(DEVIATIONS[name], dtype=torch.float64) * DEVIATIONS_ALLOWED
    distance = (_statistics(stacked(readings, name)) - limits(name)) / tolerances
    sentence = (
        "Mean, mean logarithm and median of the singular values minus those of the limit of infinite width, over the "
        f"tolerance of {DEVIATIONS_ALLOWED} standard deviations of a draw; the farthest."
    )
    return decide(over_seeds(distance), Band.around(0.0, 1.0), sentence)


def limits(name: str) -> Tensor:
    """Mean, mean logarithm and median of the limiting law."""
    law = LAWS[name]
    values = (law.mean_of(lambda x: x), law.mean_of(torch.log), law.quantile(0.5))
    return torch.tensor(values, dtype=torch.float64)


def _statistics(values: Tensor) -> Tensor:
    return torch.stack([values.mean(1), values.log().mean(1), _quantiles(values, (0.5,))[:, 0]], dim=1)


def _quantiles(values: Tensor, shares: Sequence[float] = QUANTILES) -> Tensor:
    return values.quantile(torch.tensor(shares, dtype=values.dtype), dim=1).T


CLAIMS = (
    Claim(
        "shift",
        "In the linear setting a skip connection shifts the singular value distribution upwards.",
        "Figure 1",
        "above 0",
        judge_shift,
    ),
    Claim(
        "without_skip",
        "The histogram of A (here: that of the quarter-circle law of radius 2/√3).",
        "Figure 1",
        "within 5 standard deviations",
        partial(judge_law, name="chain"),
    ),
    Claim(
        "with_skip",
        "The histogram of I + A (here: that of the free convolution with ±1, from 0.289 to 1.886).",
        "Figure 1",
        "within 5 standard deviations",
        partial(judge_law, name="skip"),
    ),
)
