"""Models whose slices are known, and a slice in a process of its own that is killed on the way."""

import os
import signal
import sys

import torch
from torch import nn

from skiplens.curvature.landscape import loss_landscape
from tests.networks import drawn

CURVATURES = torch.tensor([8.0, 3.0, 0.5, -1.0], dtype=torch.float64)
CENTRE = torch.tensor([0.3, -0.2, 1.0, 0.4], dtype=torch.float64)


class Quadric(nn.Module):
    """Returns ½ Σ h_i w_i² for every sample: its Hessian is h, its eigenvectors are the axes."""

    def __init__(self, centre=CENTRE, curvatures=CURVATURES) -> None:
        super().__init__()
        self.weights = nn.Parameter(centre.clone())
        self.register_buffer("curvatures", curvatures)

    def forward(self, inputs):
        return 0.5 * (self.curvatures * self.weights.square()).sum().expand(len(inputs), 1)


def output_itself(outputs, targets):
    """The loss that is the model's own output."""
    return outputs.mean()


DATA = (torch.zeros(3, 1, dtype=torch.float64), torch.zeros(3, 1, dtype=torch.float64))


def perceptron() -> nn.Module:
    return drawn(nn.Sequential(nn.Linear(4, 6), nn.ReLU(), nn.Linear(6, 3)))


def classes(count: int = 10) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(2)
    return torch.randn(count, 4, generator=generator, dtype=torch.float64), torch.arange(count) % 3


def kept_slice(folder, killed_at: int | None = None):
    """The slice that is kept in `folder`; the process kills itself after `killed_at` rows."""

    def watch(label: str, done: int, total: int) -> None:
        if label == "loss landscape" and done == killed_at:
            os.kill(os.getpid(), signal.SIGKILL)

    return loss_landscape(perceptron(), classes(), loss="cross_entropy", points=7, journal=str(folder), progress=watch)


if __name__ == "__main__":
    torch.set_default_dtype(torch.float64)
    torch.set_num_threads(1)
    kept_slice(sys.argv[1], int(sys.argv[2]))
