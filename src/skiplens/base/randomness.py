"""Named random generators derived from one seed; the global generators are neither read nor set."""

import hashlib
import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:  # a command that draws nothing does not wait for them
    import numpy as np
    import torch


@dataclass(frozen=True)
class Randomness:
    """A seed and a name; each name owns a stream of its own.

    Two streams with different names never share a seed (a 64-bit hash of seed and name tells them apart), so adding a
    draw somewhere does not move the numbers drawn elsewhere.

    Examples:
        >>> import torch
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

    def torch(self, device: "torch.device | str" = "cpu") -> "torch.Generator":
        """A fresh torch generator at the start of this stream."""
        import torch

        return torch.Generator(device=device).manual_seed(self.entropy())

    def numpy(self) -> "np.random.Generator":
        """A fresh NumPy generator at the start of this stream."""
        import numpy as np

        return np.random.default_rng(self.entropy())


@contextmanager
def own_random_state(device: "torch.device") -> Iterator[None]:
    """Run a block that may seed torch's generators, then put their states back."""
    import torch

    with torch.random.fork_rng(devices=[device] if device.type == "cuda" else []):
        yield


def seed_torch(randomness: Randomness, device: "torch.device") -> None:
    """Put torch's generators of the processor and of `device` at the start of a stream.

    Called before each step, so that what a step draws depends on its number only, not on what came before it: a run
    that goes on from a checkpoint draws what an undisturbed one does, and so does one that is measured on the way.
    """
    import torch

    entropy = randomness.entropy()
    torch.random.default_generator.manual_seed(entropy)
    if device.type == "cuda":
        index = torch.cuda.current_device() if device.index is None else device.index
        torch.cuda.default_generators[index].manual_seed(entropy)
