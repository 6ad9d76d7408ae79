"""The repaired network: gradient descent on it reaches a global minimum from any start, and that is proved."""

import math
from dataclasses import dataclass
from itertools import pairwise

import torch

from skiplens.core.axes import Float, Tensor
from skiplens.core.errors import InvalidInputError
from skiplens.theory.parameterised_systems import (
    NONLINEARITIES,
    Affine,
    Composition,
    Elementwise,
    Free,
    Residual,
    SkipMap,
    WeightNormalised,
)


@dataclass(frozen=True)
class GuaranteedNetwork:
    """W x, then blocks I z + s_b wn(B) tanh(s_a wn(A) tanh(z)) with truncated skips I.

    Theorem 5.1 of the paper normalises the first layer, and is false: its derivative dies where weights grow. Here the
    first layer is plain, so λ(DF) >= σ(X)² margin^(2 blocks) for all parameters; the tanh in front of each branch keeps
    the gradient Lipschitz although the outputs are unbounded.

    The parameters are W, then A and B of each block, each row first: the order of the zoo's `guaranteed_resnet`.

    Attributes:
        widths: Features of the input and of each layer's output; they never grow after the first layer.
        hidden: Units between the two matrices of a branch.
        margin: δ; branches have slopes of at most 1 − margin.
        epsilon: Of the normalisations.
    """

    widths: tuple[int, ...]
    hidden: int = 16
    margin: float = 0.5
    epsilon: float = 1.0

    def __post_init__(self) -> None:
        """Refuse what the proof does not cover."""
        layers = self.widths[1:]
        if not layers or min(self.widths) < 1 or any(after > before for before, after in pairwise(layers)):
            raise InvalidInputError(
                f"widths are {self.widths}; wanted are the input's features and then layers that never grow, such as "
                "(784, 32, 16, 10)."
            )
        if not 0 < self.margin < 1 or self.epsilon <= 0 or self.hidden < 1:
            raise InvalidInputError(
                f"margin is {self.margin}, epsilon {self.epsilon}, hidden {self.hidden}; wanted are a margin between 0 "
                "and 1, epsilon above 0 and at least one hidden unit."
            )

    @property
    def blocks(self) -> int:
        """Residual layers behind the first layer."""
        return len(self.widths) - 2

    def system(self) -> Composition:
        """The network as layers on a data matrix of features × samples."""
        first = Affine(Free(self.widths[1], self.widths[0]), name="first")
        pairs = enumerate(pairwise(self.widths[1:]))
        return Composition((first, *(self._block(number, *pair) for number, pair in pairs)))

    def random_start(self, generator: torch.Generator, scale: float = 1.0) -> Float[Tensor, " params"]:
        """Normal parameters in float64; the guarantee holds from any start."""
        size = self.system().parameters
        return scale * torch.randn(size, dtype=torch.float64, device=generator.device, generator=generator)

    def _block(self, number: int, inputs: int, outputs: int) -> Residual:
        tanh, name = NONLINEARITIES["tanh"], f"blocks.{number}"
        inner = WeightNormalised(self.hidden, inputs, self.epsilon, 1 / math.sqrt(self.hidden))
        outer = WeightNormalised(outputs, self.hidden, self.epsilon, (1 - self.margin) / math.sqrt(outputs))
        branch = Composition(
            (
                Elementwise(tanh, inputs, name=f"{name}.bound"),
                Affine(inner, name=f"{name}.inner"),
                Elementwise(tanh, self.hidden, name=f"{name}.tanh"),
                Affine(outer, name=f"{name}.outer"),
            ),
            name=f"{name}.branch",
        )
        return Residual(SkipMap.truncation(outputs, inputs), branch, name=name)
