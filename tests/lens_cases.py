"""THE list of lenses: every common test runs on it, with the default options a report uses."""

import torch
from torch import nn

from skiplens.graph.batch import Batch
from skiplens.graph.lens import Subject
from skiplens.report.lenses import LENSES
from tests.networks import drawn

CASES = list(LENSES.values())


class Block(nn.Module):
    """x + f(x), with batch norm and a nonlinearity in the branch."""

    def __init__(self) -> None:
        super().__init__()
        self.norm, self.first, self.last = nn.BatchNorm1d(4), nn.Linear(4, 5), nn.Linear(5, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.last(torch.relu(self.first(self.norm(x))))


def subject(training: bool = False) -> Subject:
    """Two blocks and a head on six samples of two classes."""
    model = drawn(nn.Sequential(Block(), Block(), nn.Linear(4, 2))).train(training)
    inputs = torch.randn(6, 4, generator=torch.Generator().manual_seed(1))
    return Subject(model, Batch(inputs, torch.tensor([0, 1, 0, 1, 1, 0])), "two blocks")
