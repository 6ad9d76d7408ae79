"""The infinitely wide DenseNet's kernels."""

from dataclasses import dataclass

from skiplens.kernels.from_limit import Evaluation
from skiplens.kernels.infinite_width import InfiniteWidthKernel, Trained
from skiplens.theory.infinite_width import DenseNetLimit, Limit


@dataclass(frozen=True)
class DenseNetKernel(InfiniteWidthKernel):
    """The kernels of the infinitely wide DenseNet (Littwin & Wolf 2020, theorem 2, corrected).

    Attributes:
        depth: L, the dense layers.
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
        """The DenseNet."""
        return DenseNetLimit(self.depth, self.trained == "all")
