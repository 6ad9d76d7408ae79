"""Dropout and data loaders draw from torch's global generators: while a run trains, these are the run's own."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch

from skiplens.core.randomness import Randomness


@contextmanager
def own_random_state(device: torch.device) -> Iterator[None]:
    """Run a block that may seed torch's generators, then put their states back."""
    with torch.random.fork_rng(devices=[device] if device.type == "cuda" else []):
        yield


def seed_torch(randomness: Randomness, device: torch.device) -> None:
    """Put torch's generators of the processor and of `device` at the start of a stream.

    Called before each step, so that what a step draws depends on its number only, not on what came before it: a run
    that goes on from a checkpoint draws what an undisturbed one does, and so does one that is measured on the way.
    """
    entropy = randomness.entropy()
    torch.random.default_generator.manual_seed(entropy)
    if device.type == "cuda":
        index = torch.cuda.current_device() if device.index is None else device.index
        torch.cuda.default_generators[index].manual_seed(entropy)
