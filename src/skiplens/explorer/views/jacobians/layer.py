"""One random layer: the singular values of W and of I + W, drawn and in the limit of infinite width."""

import math
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from skiplens.core.randomness import Randomness
from skiplens.residual.initialisation import gaussian
from skiplens.theory.random_singular_values import SingularValueLaw

NAMES = {False: "W", True: "I + W"}


@dataclass(frozen=True)
class RandomLayer:
    """A square matrix W with independent Gaussian entries of variance scale²/width.

    Attributes:
        scale: s; 1/√3 is what PyTorch gives its linear layers.
        width: Rows and columns.
        depth: How many such layers follow each other.
        seed: Names the entries.
    """

    scale: float = 0.577
    width: int = 200
    depth: int = 20
    seed: int = 0

    @cached_property
    def weights(self) -> Tensor:
        """W."""
        return gaussian((self.width, self.width), self.scale**2 / self.width, Randomness(self.seed).torch())

    @cached_property
    def identity(self) -> Tensor:
        """What a skip adds."""
        return torch.eye(self.width, dtype=torch.float64)

    @cached_property
    def singular_values(self) -> dict[bool, Tensor]:
        """Those of W and, with a skip, of I + W; descending."""
        return {skip: torch.linalg.svdvals(self.weights + skip * self.identity) for skip in NAMES}

    def law(self, has_skip: bool) -> SingularValueLaw:
        """Their law at infinite width."""
        return SingularValueLaw(self.scale, has_skip)


def log_typical(scale: float, has_skip: bool) -> float:
    """The mean of ln σ at infinite width: what a layer does to the length of a typical direction.

    It is the mean of ln |λ| too, since both are ln |det|/n, and eigenvalues fill a disc (the circular law): of radius s
    around 0, or around 1 with a skip. Over layers it adds up, because determinants multiply.
    """
    without = math.log(scale) - 0.5
    if not has_skip:
        return without
    return 0.0 if scale <= 1 else without + 0.5 / scale**2
