"""From the statistics of a network's branches to the depth ratio β, and back."""

import math
from dataclasses import dataclass

from skiplens.core.errors import InvalidInputError
from skiplens.theory.path_weights.arguments import Ratio, check_positive, ratio_tensor


@dataclass(frozen=True)
class BranchStatistics:
    """What turns a weight scale C into the depth ratio β = ρ n C/√Λ (Littwin & Wolf 2016, eq. 16).

    Attributes:
        width: n, the units of every layer.
        gate_probability: ρ, how often a ReLU is open.
        distinct_weights: Λ, how many weights differ; none means as many as the width. The choice is a convention and
            β depends on it.

    Examples:
        >>> round(BranchStatistics(width=64).depth_ratio(branch_scale=1 / 8), 12)
        0.5
    """

    width: int
    gate_probability: float = 0.5
    distinct_weights: int | None = None

    def __post_init__(self) -> None:
        """Refuse statistics that no network has."""
        check_positive(self.width, "The width")
        check_positive(self.distinct_weights if self.distinct_weights is not None else 1, "distinct_weights")
        if not 0 < self.gate_probability <= 1:
            raise InvalidInputError(
                f"The gate probability must lie in (0, 1]; got {self.gate_probability:g}. A ReLU of a symmetric "
                "pre-activation is open with probability 0.5."
            )

    @property
    def _per_scale(self) -> float:
        """β for C = 1."""
        distinct = self.width if self.distinct_weights is None else self.distinct_weights
        return self.gate_probability * self.width / math.sqrt(distinct)

    def depth_ratio(self, branch_scale: float) -> float:
        """β for the weight scale C."""
        return self._per_scale * float(check_positive(branch_scale, "The branch scale"))

    def branch_scale(self, depth_ratio: Ratio) -> Ratio:
        """The weight scale C that gives the depth ratio β."""
        beta = ratio_tensor(depth_ratio) / self._per_scale
        return beta if not isinstance(depth_ratio, float | int) else beta.item()
