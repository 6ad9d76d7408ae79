"""Small networks and data to train in tests."""

import torch
from torch import nn

from tests.networks import drawn


def noisy_network() -> nn.Module:
    """Everything that makes a run hard to repeat: dropout, batch norm, a buffer that no state dict has."""
    return drawn(nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), Counting(), nn.Dropout(0.3), nn.Linear(8, 3)))


class Counting(nn.Module):
    """Multiplies by a number that grows with each call in training mode."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("calls", torch.zeros(()), persistent=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if self.training:
            self.calls += 1
        return x * (1 + self.calls / 100)


def samples(count: int = 22) -> tuple[torch.Tensor, torch.Tensor]:
    """Four features and three classes."""
    generator = torch.Generator().manual_seed(5)
    return torch.randn(count, 4, generator=generator), torch.randint(3, (count,), generator=generator)


class Point(nn.Module):
    """A network whose only weight is a point: its output does not depend on the inputs."""

    def __init__(self, start: torch.Tensor) -> None:
        super().__init__()
        self.point = nn.Parameter(start.clone())

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        return self.point.expand(len(inputs), -1)
