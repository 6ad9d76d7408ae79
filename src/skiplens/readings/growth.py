"""How fast a quantity grows from block to block, with its uncertainty."""

import math
from dataclasses import dataclass

import torch

from skiplens.core.axes import Float, Tensor

CONFIDENCE = 0.95


@dataclass(frozen=True)
class Growth:
    """A rate per block in log space: the quantity is multiplied by e^rate at each block.

    Attributes:
        rate: Median of the slopes between all pairs of depths (Theil and Sen).
        low: Lower end of its distribution-free 95 % confidence interval.
        high: Upper end of it.
    """

    rate: float
    low: float
    high: float

    @property
    def surely(self) -> float:
        """The end of the interval nearest to no growth; 0 where the interval holds it."""
        if not math.isfinite(self.low + self.high) or self.low <= 0 <= self.high:
            return 0.0
        return self.low if self.low > 0 else self.high


def growth_of(values: Float[Tensor, "depths samples"]) -> Growth:
    """The growth of positive `values` with depth, from the mean of their logarithms over samples.

    The median of slopes passes over a few jumps (an embedding that is smaller than what the first block adds, a
    projection between stages), which a least-squares fit would spread over the whole depth. It is NaN where there are
    fewer than two depths or a value is not finite.
    """
    if len(values) < 2 or not bool(values.isfinite().all()):
        return Growth(math.nan, math.nan, math.nan)
    from scipy import stats  # it takes longer to load than all of Skiplens

    logarithms = values.double().clamp_min(torch.finfo(torch.float64).tiny).log().mean(1)
    rate, _, low, high = stats.theilslopes(logarithms.numpy(), alpha=CONFIDENCE)
    return Growth(float(rate), float(low), float(high))
