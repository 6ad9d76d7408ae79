"""Kernels by the name of their architecture, for adapters whose options must be plain values."""

from dataclasses import dataclass
from typing import Literal

from torch import Tensor

from skiplens.core.errors import InvalidInputError
from skiplens.core.nearest import did_you_mean
from skiplens.kernels.densenet import DenseNetKernel
from skiplens.kernels.infinite_width import InfiniteWidthKernel, Trained
from skiplens.kernels.resnet import ResNetKernel
from skiplens.kernels.vanilla import VanillaKernel

Architecture = Literal["resnet", "densenet", "vanilla"]


@dataclass(frozen=True, eq=False)
class ArchitectureOptions:
    """What names a kernel; `branch_depth` and `branch_scale` matter to a ResNet only."""

    architecture: str
    depth: int
    branch_depth: int
    branch_scale: float | Tensor
    trained: Trained
    normalise: bool

    def kernel(self) -> InfiniteWidthKernel:
        """The kernel with these options."""
        if self.architecture == "resnet":
            return ResNetKernel(
                self.depth, self.branch_depth, self.branch_scale, trained=self.trained, normalise=self.normalise
            )
        if self.architecture == "densenet":
            return DenseNetKernel(self.depth, trained=self.trained, normalise=self.normalise)
        if self.architecture == "vanilla":
            return VanillaKernel(self.depth, trained=self.trained, normalise=self.normalise)
        known = ("resnet", "densenet", "vanilla")
        raise InvalidInputError(
            f"There is no architecture {self.architecture!r}. {did_you_mean(self.architecture, known)}"
        )
