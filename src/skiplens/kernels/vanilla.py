"""The infinitely wide plain ReLU network's kernels."""

from dataclasses import dataclass

from skiplens.kernels.from_limit import Evaluation
from skiplens.kernels.infinite_width import InfiniteWidthKernel, Trained
from skiplens.theory.infinite_width import Limit, VanillaLimit


@dataclass(frozen=True)
class VanillaKernel(InfiniteWidthKernel):
    """The kernels of the infinitely wide ReLU network without skip connections.

    Attributes:
        depth: L, the layers with a ReLU.
    """

    depth: int
    trained: Trained = "branches"
    evaluation: Evaluation = "table"
    accuracy: float = 1e-12
    normalise: bool = False

    def __post_init__(self) -> None:
        """Check the options."""
        self._require_common_options()

    def limit(self) -> Limit:
        """The plain network."""
        return VanillaLimit(self.depth, self.trained == "all")
