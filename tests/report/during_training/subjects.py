"""What monitors are tried on: a small residual network that is hard to repeat, data for it, and a clock."""

import torch
import torch.nn.functional as F
from torch import nn

from tests.networks import drawn, noise

FREELY = 1e12
"""A share of time that allows every look."""


class Residual(nn.Module):
    """Two blocks with a batch norm at the end of the branch, then dropout and three classes."""

    def __init__(self, width: int = 5) -> None:
        super().__init__()
        self.stem = nn.Linear(4, width)
        self.branches = nn.ModuleList(nn.Sequential(nn.Linear(width, width), nn.BatchNorm1d(width)) for _ in range(2))
        self.dropout = nn.Dropout(0.2)
        self.head = nn.Linear(width, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.stem(x)
        for branch in self.branches:
            x = x + branch(torch.relu(x))
        return self.head(self.dropout(x))


class Clock:
    """Time that passes when it is told to."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def network() -> nn.Module:
    return drawn(Residual())


def samples(count: int = 12) -> tuple[torch.Tensor, torch.Tensor]:
    return noise(count, 4, seed=3), torch.arange(count) % 3


def optimiser(model: nn.Module) -> torch.optim.Optimizer:
    return torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)


def update(model: nn.Module, descent: torch.optim.Optimizer) -> torch.Tensor:
    """One step on a batch drawn from torch's own generator, with dropout; its loss."""
    inputs, targets = samples()
    chosen = torch.randperm(len(inputs))[:8]
    descent.zero_grad()
    loss = F.cross_entropy(model(inputs[chosen]), targets[chosen])
    loss.backward()
    descent.step()
    return loss
