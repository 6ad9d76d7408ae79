"""Tangent kernels of finite networks with random weights, drawn a few at a time so that progress is seen."""

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from skiplens.core.progress import Progress, silent, track
from skiplens.core.randomness import Randomness
from skiplens.theory.finite_width import kernel_moments, sample_kernels
from skiplens.theory.finite_width.networks import Network

ANGLES = 9
"""From 0 to π; the narrowest network of the view is still twice as wide as there are inputs."""

AT_ONCE = 5


def plane(angles: int = ANGLES) -> Tensor:
    """Vectors of the plane with ‖x‖² = d = 2, at equal steps of the angle to the first from 0 to π."""
    theta = torch.linspace(0, math.pi, angles, dtype=torch.float64)
    return 2**0.5 * torch.stack([theta.cos(), theta.sin()], 1)


@dataclass(frozen=True, eq=False)
class Sampled:
    """Kernels of the first input with all, (networks, angles), divided by the mean of the kernel at equal inputs."""

    kernels: Tensor

    @property
    def relative_variance(self) -> tuple[float, float]:
        """The variance of the kernel at equal inputs and its standard error, relative to the squared mean."""
        squares = (self.kernels[:, 0] - self.kernels[:, 0].mean()).square()
        count = len(squares)
        spread = squares * (count / (count - 1))
        return float(spread.mean()), float(spread.std() / count**0.5)


@dataclass(frozen=True)
class Sampling:
    """Which networks to draw: how many, from which seed, with which layers trained."""

    network: Network
    networks: int
    seed: int
    trained: str

    @property
    def rounds(self) -> list[int]:
        """How many networks are drawn at a time."""
        whole, rest = divmod(self.networks, AT_ONCE)
        return [AT_ONCE] * whole + [rest] * bool(rest)

    def draw(self, progress: Progress = silent) -> Sampled:
        """The kernels of all networks, relative to their exact mean at equal inputs."""
        inputs, mean = plane(), float(kernel_moments(self.network, self.trained).mean)
        generator, rounds = Randomness(self.seed).torch(), self.rounds
        sizes = track(rounds, "sampled networks", len(rounds), progress)
        drawn = [sample_kernels(self.network, inputs, size, generator, self.trained) for size in sizes]
        return Sampled(torch.cat([each.samples[:, 0] for each in drawn]) / mean)
