"""Random blocks with different shortcuts: a chain, a residual block, one with an average pool."""

from dataclasses import dataclass

import torch
from torch import Tensor

from skiplens.core.randomness import Randomness
from skiplens.residual.initialisation import gaussian

POOLED = 4
"""Features that an average pool puts together: a window of 2 × 2 pixels."""


@dataclass(frozen=True)
class RandomBlocks:
    """Blocks of two random matrices with a ReLU between them, at random weights and a random input.

    Attributes:
        scale: Weights have variance scale²/inputs.
        width: Features that enter; a quarter of them leaves a block that shrinks.
        seed: Names the weights and which ReLUs are on.
    """

    scale: float = 0.577
    width: int = 200
    seed: int = 0

    def keeping_width(self) -> dict[str, Tensor]:
        """Jacobians of blocks with as many outputs as inputs."""
        branch = self._branch(self.width)
        return {"chain": branch, "residual (identity skip)": branch + torch.eye(self.width, dtype=torch.float64)}

    def shrinking(self) -> dict[str, Tensor]:
        """Jacobians of blocks with a quarter of the outputs; all have the same branch."""
        branch, projection = self._branch(self.outputs), self._draw("projection", self.outputs, self.width)
        return {
            "chain": branch,
            "residual (projection)": branch + projection,
            "residual with average pool": branch + projection + average_pool(self.outputs, self.width),
        }

    @property
    def outputs(self) -> int:
        """Features that leave a block that shrinks."""
        return self.width // POOLED

    def _branch(self, outputs: int) -> Tensor:
        """W₂ D W₁ with as many hidden units as inputs, half of which D switches off."""
        first, last = self._draw("first", self.width, self.width), self._draw("last", outputs, self.width)
        are_on = torch.rand(self.width, generator=self._stream("gates", outputs), dtype=torch.float64) < 0.5
        return last @ (are_on[:, None] * first)

    def _draw(self, name: str, outputs: int, inputs: int) -> Tensor:
        return gaussian((outputs, inputs), self.scale**2 / inputs, self._stream(name, outputs))

    def _stream(self, name: str, outputs: int) -> torch.Generator:
        return Randomness(self.seed).child(name, outputs).torch()


def average_pool(outputs: int, inputs: int) -> Tensor:
    """Averages of neighbours, scaled so that all singular values are 1; features left over are dropped."""
    group = torch.arange(inputs) // POOLED
    return (group == torch.arange(outputs)[:, None]).double() / POOLED**0.5
