"""Numbers that hooks see of some samples, each of which can be told for more of them."""

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor


class Seen(ABC):
    """A number of some samples that can be told for more of them."""

    @abstractmethod
    def __float__(self) -> float:
        """The number."""

    @abstractmethod
    def __add__(self, other: Any) -> "Seen":
        """The same of the samples of both."""


@dataclass(frozen=True)
class Size(Seen):
    """The root mean square of so many entries, or the norm itself if they are not counted."""

    norm: Tensor
    entries: int = 0

    def __float__(self) -> float:
        return float(self.norm) / math.sqrt(max(1, self.entries))

    def __add__(self, other: "Size") -> "Size":
        return Size(torch.hypot(self.norm, other.norm), self.entries + other.entries)


@dataclass(frozen=True)
class Share(Seen):
    """The share of entries that were counted."""

    counted: Tensor
    entries: int

    def __float__(self) -> float:
        return float(self.counted) / self.entries if self.entries else math.nan

    def __add__(self, other: "Share") -> "Share":
        return Share(self.counted + other.counted, self.entries + other.entries)


@dataclass(frozen=True)
class Always(Seen):
    """The share of units for which something holds on all samples."""

    units: Tensor

    def __float__(self) -> float:
        return float(self.units.double().mean())

    def __add__(self, other: "Always") -> "Always":
        return Always(self.units & other.units)


@dataclass(frozen=True)
class Spread(Seen):
    """The mean over pairs of samples of 1 − cosine; NaN where there is no axis of at least two samples.

    It is n/(n − 1) times the mean square distance of the unit vectors from their mean, which keeps its digits where
    the cosine is 1 to rounding.
    """

    samples: int
    mean: Tensor | None = None  # of the unit vectors; None where there is no axis of samples
    distance: Tensor | float = math.nan  # the mean square from it

    @classmethod
    def of(cls, value: Tensor, samples: int) -> "Spread":
        """The spread of a tensor in which so many samples have an axis."""
        if value.ndim > 1 and value.shape[0] % samples and value.shape[1] == samples:
            value = value.transpose(0, 1)  # the axis of time comes first
        if not value.numel() or not value.ndim or value.shape[0] % samples:
            return cls(samples)
        rows = value.detach().reshape(samples, -1)
        rows = rows if rows.dtype == torch.float64 else rows.float()
        sizes = torch.linalg.vector_norm(rows, dim=1, keepdim=True, dtype=torch.float64)
        units = rows / sizes.clamp_min(torch.finfo(rows.dtype).tiny).to(rows.dtype)
        mean = units.mean(0)
        return cls(samples, mean, (units - mean).square().sum(1).mean().double())

    def __float__(self) -> float:
        return math.nan if self.samples < 2 else float(self.distance) * self.samples / (self.samples - 1)

    def __add__(self, other: "Spread") -> "Spread":
        samples = self.samples + other.samples
        if self.mean is None or other.mean is None:
            return Spread(samples)
        mine, theirs, apart = self.samples / samples, other.samples / samples, other.mean - self.mean
        between = mine * theirs * apart.square().sum().double()
        return Spread(samples, self.mean + theirs * apart, mine * self.distance + theirs * other.distance + between)
