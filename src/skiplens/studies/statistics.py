"""Verdicts from confidence intervals over seeds: one lucky seed decides nothing."""

from collections.abc import Sequence
from dataclasses import dataclass

import scipy.stats
import torch

from skiplens.core.axes import Tensor
from skiplens.core.errors import InvalidInputError
from skiplens.studies.claim import Judgement

LEVEL = 1e-4
"""The chance that an interval misses the truth; small, because a study has dozens of claims and any seed must agree."""

UNDECIDED = "The confidence interval is too wide to decide; use a larger preset."


@dataclass(frozen=True)
class Interval:
    """Confidence intervals of one or many numbers, holding together."""

    value: Tensor
    half_width: Tensor

    @property
    def low(self) -> Tensor:
        """The lower ends."""
        return self.value - self.half_width

    @property
    def high(self) -> Tensor:
        """The upper ends."""
        return self.value + self.half_width


@dataclass(frozen=True)
class Band:
    """The numbers that agree with a statement, from `low` to `high`; `tolerance` says how much of it is leniency."""

    low: float
    high: float
    tolerance: float = 0.0

    @classmethod
    def around(cls, target: float, tolerance: float) -> "Band":
        """Numbers within `tolerance` of `target`."""
        return cls(target - tolerance, target + tolerance, tolerance)

    @classmethod
    def between(cls, low: float, high: float, tolerance: float = 0.0) -> "Band":
        """Numbers between two bounds that may be missed by `tolerance`."""
        return cls(low - tolerance, high + tolerance, tolerance)

    def holds(self, found: Interval) -> bool:
        """Whether all intervals lie inside."""
        return bool(((found.low >= self.low) & (found.high <= self.high)).all())

    def rejects(self, found: Interval) -> bool:
        """Whether some interval lies wholly outside."""
        return bool(((found.high < self.low) | (found.low > self.high)).any())

    def worst(self, found: Interval) -> int:
        """The index of the interval that reaches farthest out, or least far in."""
        return int(torch.maximum(self.low - found.low, found.high - self.high).argmax())


def over_seeds(values: Sequence[Tensor | float] | Tensor, comparisons: int | None = None) -> Interval:
    """The means over the first axis with Student's intervals; many numbers share the chance of a miss (Bonferroni).

    Args:
        values: One entry a seed.
        comparisons: How many numbers share that chance, where there are more than these.
    """
    stacked = torch.stack([torch.as_tensor(value, dtype=torch.float64) for value in values])
    seeds, comparisons = len(stacked), comparisons or max(1, stacked[0].numel())
    if seeds < 2:
        raise InvalidInputError(f"A confidence interval needs at least 2 seeds, got {seeds}.")
    quantile = scipy.stats.t.ppf(1 - LEVEL / (2 * comparisons), seeds - 1)
    return Interval(stacked.mean(0), quantile * stacked.std(0) / seeds**0.5)


def exactly(values: Tensor | Sequence[float] | float) -> Interval:
    """Numbers without uncertainty: closed forms, which no seed moves."""
    known = torch.as_tensor(values, dtype=torch.float64)
    return Interval(known, torch.zeros_like(known))


def decide(found: Interval, printed: Band, explanation: str) -> Judgement:
    """Reproduced if the interval lies inside the printed band, differs if outside, else undecided."""
    if printed.holds(found):
        return _judged("reproduced", found, printed, explanation)
    if printed.rejects(found):
        return _judged("differs", found, printed, explanation)
    return _judged("not attempted", found, printed, f"{explanation} {UNDECIDED}")


def decide_correction(printed: tuple[Interval, Band], corrected: tuple[Interval, Band], explanation: str) -> Judgement:
    """Corrected if the printed statement is rejected and the corrected one holds.

    Args:
        printed: What was found, and what the paper prints for it.
        corrected: What was found, and what is right for it; the number that is reported.
        explanation: What was compared, with both statements.
    """
    (as_printed, printed_band), (as_corrected, corrected_band) = printed, corrected
    if printed_band.holds(as_printed):
        return _judged("reproduced", as_printed, printed_band, explanation)
    if not printed_band.rejects(as_printed):
        return _judged("not attempted", as_printed, printed_band, f"{explanation} {UNDECIDED}")
    if corrected_band.holds(as_corrected):
        return _judged("corrected", as_corrected, corrected_band, explanation)
    if corrected_band.rejects(as_corrected):
        return _judged("differs", as_corrected, corrected_band, explanation)
    return _judged("not attempted", as_corrected, corrected_band, f"{explanation} {UNDECIDED}")


def slope(x: Sequence[float], y: Tensor) -> Tensor:
    """The least-squares slope of each row of `y` over `x`."""
    centred = torch.tensor(x, dtype=torch.float64)
    centred = centred - centred.mean()
    return y.double() @ centred / centred.square().sum()


def _judged(verdict: str, found: Interval, band: Band, explanation: str) -> Judgement:
    index = band.worst(found)
    value, half_width = float(found.value.flatten()[index]), float(found.half_width.flatten()[index])
    return Judgement(verdict, value, half_width, band.tolerance, explanation)  # type: ignore[arg-type]  # one of Word
