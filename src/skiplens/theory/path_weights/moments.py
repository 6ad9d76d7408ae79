"""Moments of the path length under ε_r², which is all that the number of critical points depends on."""

from dataclasses import dataclass

from torch import Tensor

from skiplens.core.axes import Float
from skiplens.core.errors import InvalidInputError
from skiplens.theory.path_weights.arguments import Ratio, check_depth, check_shortest, ratio_tensor
from skiplens.theory.path_weights.bulk import bulk


@dataclass(frozen=True)
class PathMoments:
    """Moments of the path length r under ε_r².

    Attributes:
        mean: v′ = E r.
        variance: α² = Var r.
        factorial: v″ = E r(r − 1).
        curvature_ratio: B = v″/v′; the mixture has the complexity of a pure spin glass of order B + 1.
    """

    mean: Float[Tensor, "*ratios"]
    variance: Float[Tensor, "*ratios"]
    factorial: Float[Tensor, "*ratios"]
    curvature_ratio: Float[Tensor, "*ratios"]

    @property
    def effective_order(self) -> Float[Tensor, "*ratios"]:
        """B + 1 = E r²/E r."""
        return self.curvature_ratio + 1


def path_moments(depth: int, depth_ratio: Ratio, shortest: int = 1) -> PathMoments:
    """Moments of the path length for each depth ratio, at a cost that does not grow with the depth.

    Args:
        depth: p, the layers.
        depth_ratio: β, one number or a tensor of any shape.
        shortest: 1 keeps the linear term r = 1 as the network has it; 2 drops it and normalises again, as the
            paper's spin glass does (its figure 1f).
    """
    blocks, fewest = check_depth(depth) - 1, check_shortest(shortest) - 1
    if blocks < fewest:
        raise InvalidInputError(f"A network of depth {depth} has no path of length {shortest}; use a larger depth.")
    law = bulk(blocks, ratio_tensor(depth_ratio), fewest)
    branches = law.mean(law.branches)
    variance = law.mean((law.branches - branches[..., None]).square())
    mean = 1 + branches
    factorial = variance + branches.square() + branches  # r(r−1) = j² + j, exact also for tiny β
    return PathMoments(mean, variance, factorial, factorial / mean)
