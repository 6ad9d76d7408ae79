"""Named random generators derived from one seed; the global generators are neither read nor set."""

import hashlib
import json
from dataclasses import dataclass

import numpy as np
import torch


@dataclass(frozen=True)
class Randomness:
    """A seed and a name; each name owns a stream of its own.

    Two streams with different names never share a seed (a 64-bit hash of seed and name tells them apart), so adding a
    draw somewhere does not move the numbers drawn elsewhere.

    Examples:
        >>> weights = Randomness(0).child("weights")
        >>> torch.equal(torch.randn(2, generator=weights.torch()), torch.randn(2, generator=weights.torch()))
        True
    """

    seed: int
    name: tuple[str, ...] = ()

    def child(self, *name: str | int) -> "Randomness":
        """The randomness called `name` below this one."""
        return Randomness(self.seed, (*self.name, *(f"{type(part).__name__}:{part}" for part in name)))

    def entropy(self) -> int:
        """The 64 bits that seed this stream."""
        text = json.dumps([int(self.seed), *self.name])
        return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "little")

    def torch(self, device: torch.device | str = "cpu") -> torch.Generator:
        """A fresh torch generator at the start of this stream."""
        return torch.Generator(device=device).manual_seed(self.entropy())

    def numpy(self) -> np.random.Generator:
        """A fresh NumPy generator at the start of this stream."""
        return np.random.default_rng(self.entropy())
