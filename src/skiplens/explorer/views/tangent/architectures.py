"""The three architectures of one setting: as infinitely wide kernels and as finite networks."""

from dataclasses import dataclass, replace
from typing import Literal

from skiplens.explorer.view import Values
from skiplens.kernels import DenseNetKernel, ResNetKernel, VanillaKernel
from skiplens.kernels.infinite_width import InfiniteWidthKernel, Trained
from skiplens.theory.finite_width import DenseNet, ResNet, Vanilla
from skiplens.theory.finite_width.networks import Network

Architecture = Literal["resnet", "densenet", "vanilla"]

TITLES: dict[Architecture, str] = {"resnet": "ResNet", "densenet": "DenseNet", "vanilla": "vanilla"}
"""Each architecture as people call it, in the order of its colours."""

_DIGITS = 4  # of a computed scale: the moments are exact in its decimals, and few of them make them quick


@dataclass(frozen=True)
class Setting:
    """What is drawn: one depth and width for all architectures, and the branches of the residual one.

    Attributes:
        architecture: The one that numbers and sampled networks are of.
        depth: Residual blocks or layers (L).
        width: Units of every layer of a finite network (n).
        branch_depth: Weight matrices of a branch (m).
        branch_scale: Scale of each of these matrices (α).
        mark: The a of the scale a·L^(−1/m) that is marked.
        trained: Whether the first and the last layer are trained too.
    """

    architecture: Architecture = "resnet"
    depth: int = 20
    width: int = 100
    branch_depth: int = 2
    branch_scale: float = 0.3
    mark: float = 1.0
    trained: Trained = "branches"

    @classmethod
    def of(cls, values: Values) -> "Setting":
        """The setting that the values of the controls describe."""
        found = cls(**{name: values[name] for name in cls.__dataclass_fields__})
        return replace(found, branch_scale=float(found.branch_scale), mark=float(found.mark))

    @property
    def block_gain(self) -> float:
        """The factor α^m by which a branch multiplies the squared signal."""
        return self.branch_scale**self.branch_depth

    @property
    def marked_scale(self) -> float:
        """The scale α = a·L^(−1/m) at this depth."""
        return float(f"{self.mark * self.depth ** (-1 / self.branch_depth):.{_DIGITS}g}")

    def at_marked_scale(self) -> "Setting":
        """The same setting with the marked scale."""
        return replace(self, branch_scale=self.marked_scale)

    def network(self, architecture: Architecture | None = None) -> Network:
        """The finite network of an architecture; of the chosen one if none is named."""
        match architecture or self.architecture:
            case "resnet":
                return ResNet(self.depth, self.width, self.branch_depth, self.branch_scale)
            case "densenet":
                return DenseNet(self.depth, self.width)
            case "vanilla":
                return Vanilla(self.depth, self.width)

    def kernel(self, architecture: Architecture | None = None) -> InfiniteWidthKernel:
        """The infinitely wide network's kernel, relative to equal inputs."""
        match architecture or self.architecture:
            case "resnet":
                return ResNetKernel(
                    self.depth, self.branch_depth, self.branch_scale, trained=self.trained, normalise=True
                )
            case "densenet":
                return DenseNetKernel(self.depth, trained=self.trained, normalise=True)
            case "vanilla":
                return VanillaKernel(self.depth, trained=self.trained, normalise=True)
