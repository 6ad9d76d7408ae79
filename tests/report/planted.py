"""Faults planted into a small network that has to learn random classes by heart, so that every branch counts."""

import torch
from torch import nn

from skiplens.base.randomness import Randomness
from skiplens.zoo.weight_laws import fill_weights_, he_weights

SAMPLES, FEATURES, WIDTH, CLASSES = 128, 8, 12, 4


class Block(nn.Module):
    """x + W₃ ReLU(W₂ ReLU(W₁ x))."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(WIDTH, WIDTH) for _ in range(3))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        first, second, third = self.layers
        return x + third(torch.relu(second(torch.relu(first(x)))))


def data() -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(3)
    inputs = torch.randn(SAMPLES, FEATURES, generator=generator)
    return inputs, torch.randint(CLASSES, (SAMPLES,), generator=generator)


def healthy(blocks: int) -> nn.Sequential:
    net = nn.Sequential(nn.Linear(FEATURES, WIDTH), *(Block() for _ in range(blocks)), nn.Linear(WIDTH, CLASSES))
    fill_weights_(net, he_weights, Randomness(0))
    with torch.no_grad():
        for block in net[1:-1]:
            block.layers[2].weight.mul_(blocks**-0.5)
    return net


@torch.no_grad()
def exploding() -> nn.Sequential:
    """The branches are far too large."""
    net = healthy(5)
    for block in net[1:-1]:
        block.layers[2].weight.mul_(10)
    return net


@torch.no_grad()
def triple_zero() -> nn.Sequential:
    """All three matrices of each branch start at zero."""
    net = healthy(2)
    for block in net[1:-1]:
        for layer in block.layers:
            layer.weight.zero_()
    return net


@torch.no_grad()
def dead() -> nn.Sequential:
    """The first of two blocks is shut for good."""
    net = healthy(2)
    net[1].layers[1].bias.fill_(-1e6)
    return net


class Thinning(nn.Module):
    """Dropout by a function whose rate nobody can find and switch off."""

    def forward(self, x):
        return nn.functional.dropout(x, 0.5, self.training)
