"""What every inspection sees first: how signal and gradient fare from block to block, and what stands in their way."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from skiplens.base import Float, Int, in_words, span
from skiplens.readings.reading import Reading

Names = tuple[str, ...]
CONFIDENCE = 0.95


@dataclass(frozen=True)
class Growth:
    """A rate per block in log space: the quantity is multiplied by e^rate at each block."""

    rate: float  # median of the slopes between all pairs of depths (Theil and Sen)
    low: float  # the ends of its distribution-free 95 % confidence interval
    high: float
    steps: int = 0  # blocks that it was measured over
    total: float = math.nan  # logarithm of what it was multiplied by in all of them

    def over(self, blocks: int) -> float:
        """The factor over so many blocks: as measured where these are all, else by the rate."""
        exponent = blocks * self.rate
        if blocks == self.steps and self.total * self.rate > 0:
            exponent = self.total
        return math.exp(exponent) if exponent < 700 else math.inf

    @property
    def words(self) -> str:
        """The factor at each block, with its interval."""
        rate, ends = in_words(math.exp(self.rate)), span(math.exp(self.low), math.exp(self.high))
        return rate if ends == rate else f"{rate} ({ends})"

    @property
    def surely(self) -> float:
        """The end of the interval nearest to no growth; 0 where the interval holds it."""
        if not math.isfinite(self.low + self.high) or self.low <= 0 <= self.high:
            return 0.0
        return self.low if self.low > 0 else self.high


class SignalReading(Reading, kind="signal"):
    """Signal and gradient by depth, and the state of each branch.

    A depth is the input of the first block or the join of an outermost block. Entry i of a per-block field speaks of
    block i in the order of execution, blocks inside of others included.

    Attributes:
        samples: How many samples were followed.
        precision: dtype of the signal.
        block_names: Names of the blocks.
        outermost: Which blocks lie in no other one; their joins are the depths after the first.
        signal: Root mean square of the signal at each depth.
        gradient: Norm of the derivative, by the signal at each depth, of the output along a random direction.
        branch_norms: Root mean square of what the branch adds at its join.
        shortcut_norms: Root mean square of what the shortcut brings there.
        alignments: Cosine between the two.
        branch_gradients: Norm of that derivative by the weight matrices and scales of the branch.
        norm_scales: Mean |γ| of the last batch norm of the branch; NaN where it has none.
        weight_norms: Root mean square of the Frobenius norms of the branch's weight matrices.
        dead_units: Share of units that are zero on all samples, in the ReLU layer of the branch where this is the
            most surprising; NaN without one.
        dead_widths: How many units that layer has.
        saturated_units: Largest share of units of a tanh or sigmoid layer whose slope is under 1 % of its largest on
            all samples; NaN without one.
        zero_factors: How many weight matrices and scales of the branch, in series, are zero or nearly so.
        branch_depths: Weight matrices in series.
        widths: Fewest outputs of a weight matrix of the branch.
        normalised: Whether the branch holds a normalisation layer.
        matrices: Names of the parameters of its weight matrices.
        scales: Names of the parameters that multiply each entry (those of normalisations and layer scales).
        shifts: Names of all its other parameters.
        output_parameters: Parameters that the branch's output is proportional to; empty where none are.
        dropout: Modules whose dropout is switched on.
        fresh_norms: Batch norms in evaluation mode whose statistics were never updated.
        repeat_difference: Largest difference between the outputs of two calls, relative to the largest output.
        training: Whether the model was in training mode.
        starts: Places, among the outermost blocks, of those that begin another chain: after a matrix or a change of
            size between stages, in another tower, in a decoder.
        start_signal: Root mean square of the signal that enters these blocks.
        start_gradient: Norm of the derivative by it.
        in_series: The most outermost blocks that one signal can pass; 0 in files from before it was counted.
        cut: First depths that the model lets no gradient into, which is zero there.
        broken: Where values that are not finite were met.
        notes: What a person should know before reading on.
    """

    may_lack: ClassVar[Mapping[str, str]] = {
        **dict.fromkeys(("branch_norms", "shortcut_norms", "alignments"), "the sum of the block was not seen"),
        "branch_gradients": "the model lets no gradient into the branch",
        "norm_scales": "the branch has no batch norm",
        "weight_norms": "the branch has no weight matrix",
        "dead_units": "the branch has no ReLU",
        "saturated_units": "the branch has no tanh or sigmoid",
    }

    samples: int
    precision: str
    block_names: Names
    outermost: tuple[bool, ...]
    signal: Float[Tensor, "depths samples"]
    gradient: Float[Tensor, "depths samples"]
    branch_norms: Float[Tensor, " blocks"]
    shortcut_norms: Float[Tensor, " blocks"]
    alignments: Float[Tensor, " blocks"]
    branch_gradients: Float[Tensor, " blocks"]
    norm_scales: Float[Tensor, " blocks"]
    weight_norms: Float[Tensor, " blocks"]
    dead_units: Float[Tensor, " blocks"]
    dead_widths: Int[Tensor, " blocks"]
    saturated_units: Float[Tensor, " blocks"]
    zero_factors: Int[Tensor, " blocks"]
    branch_depths: Int[Tensor, " blocks"]
    widths: Int[Tensor, " blocks"]
    normalised: tuple[bool, ...]
    matrices: tuple[Names, ...]
    scales: tuple[Names, ...]
    shifts: tuple[Names, ...]
    output_parameters: tuple[Names, ...]
    dropout: Names = ()
    fresh_norms: Names = ()
    repeat_difference: float = 0.0
    training: bool = True
    starts: tuple[int, ...] = ()
    start_signal: Float[Tensor, "starts samples"] | None = None
    start_gradient: Float[Tensor, "starts samples"] | None = None
    in_series: int = 0
    cut: int = 0
    broken: Names = ()
    notes: tuple[str, ...] = ()

    @property
    def depths(self) -> Names:
        """Names of the depths: the input, then the outermost blocks."""
        joins = (name for name, outer in zip(self.block_names, self.outermost, strict=True) if outer)
        return ("input", *joins) if self.block_names else ()

    @property
    def depth(self) -> int:
        """Number of outermost blocks (L)."""
        return sum(self.outermost)

    @property
    def branch_ratios(self) -> Float[Tensor, " blocks"]:
        """Branch over shortcut at each join."""
        return self.branch_norms / self.shortcut_norms

    @property
    def signal_growth(self) -> Growth:
        """How the signal grows from block to block."""
        return growth_of(self._along_blocks(self.signal, self.start_signal))

    @property
    def gradient_growth(self) -> Growth:
        """How the gradient grows from block to block on its way back, from the output as far as it is let in."""
        return growth_of(self._along_blocks(self.gradient, self.start_gradient)[self.cut :].flip(0))

    @property
    def longest(self) -> int:
        """Outermost blocks that one signal passes one after the other; all of them in a single chain."""
        return self.in_series or self.depth

    def _along_blocks(
        self, values: Float[Tensor, "depths samples"], at_starts: Tensor | None
    ) -> Float[Tensor, "depths samples"]:
        """The values as blocks alone would change them: what happens between two chains is taken out."""
        if at_starts is None or not self.starts:
            return values
        least = torch.finfo(torch.float64).tiny
        logarithms, entering = (v.double().clamp_min(least).log() for v in (values, at_starts))
        steps = logarithms.diff(dim=0)
        steps[list(self.starts)] = logarithms[[place + 1 for place in self.starts]] - entering
        return torch.cat([logarithms[:1], logarithms[:1] + steps.cumsum(0)]).exp()


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
    total = float(logarithms[-1] - logarithms[0])
    return Growth(float(rate), float(low), float(high), len(logarithms) - 1, total)
