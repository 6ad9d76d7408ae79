"""A quantity along several training runs: at given losses or after given steps."""

import math
from dataclasses import dataclass

import torch

from skiplens.core.axes import Float, Int, Tensor
from skiplens.readings.reading import Reading


@dataclass(frozen=True, kw_only=True, eq=False)
class QuantityAlong(Reading, kind="along"):
    """What several runs measured at the same places of their ways.

    Attributes:
        name: The quantity.
        along: What counts the places: ``"loss"`` (where it is first reached) or ``"step"`` (updates made).
        places: The losses in descending order, or the steps in ascending order.
        by_run: One row a run; NaN where the run never came to that place.
    """

    name: str
    along: str
    places: Float[Tensor, " places"]
    by_run: Float[Tensor, "runs places"]

    @property
    def runs(self) -> Int[Tensor, " places"]:
        """How many runs reached each place."""
        return (~self.by_run.isnan()).sum(0)

    @property
    def mean(self) -> Float[Tensor, " places"]:
        """The mean over the runs that reached the place; NaN where none did."""
        return self.by_run.nanmean(0)

    @property
    def standard_error(self) -> Float[Tensor, " places"]:
        """The standard error of that mean; NaN where fewer than two runs reached the place."""
        squares = (self.by_run - self.mean).square().nansum(0)
        several = torch.where(self.runs > 1, self.runs, math.nan)
        return (squares / (several - 1) / several).sqrt()

    @property
    def lowest(self) -> Float[Tensor, " places"]:
        """The smallest value of any run; NaN where none reached the place."""
        return self._without_missing(math.inf).amin(0).where(self.runs > 0, math.nan)

    @property
    def highest(self) -> Float[Tensor, " places"]:
        """The largest value of any run; NaN where none reached the place."""
        return self._without_missing(-math.inf).amax(0).where(self.runs > 0, math.nan)

    def _without_missing(self, instead: float) -> Tensor:
        return self.by_run.where(~self.by_run.isnan(), instead)
