"""Small residual networks whose branches have a known size."""

from collections.abc import Callable

import torch
from torch import nn

from skiplens.base.randomness import Randomness
from skiplens.zoo.weight_laws import fill_weights_, he_weights

WIDTH, BLOCKS = 12, 4


class Block(nn.Module):
    """x + s · W₂ ReLU(W₁ x)."""

    def __init__(self, scale: float) -> None:
        super().__init__()
        self.first, self.last, self.scale = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, WIDTH), scale

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.scale * self.last(torch.relu(self.first(x)))


def build(scale: float) -> Callable[[int], nn.Module]:
    """From a seed to a network with branches of that scale."""

    def drawn(seed: int) -> nn.Module:
        net = nn.Sequential(nn.Linear(6, WIDTH), *(Block(scale) for _ in range(BLOCKS)), nn.Linear(WIDTH, 3))
        fill_weights_(net, he_weights, Randomness(seed))
        return net

    return drawn


def data(samples: int = 24) -> tuple[torch.Tensor, torch.Tensor]:
    return torch.randn(samples, 6, generator=torch.Generator().manual_seed(1)), torch.arange(samples) % 3
