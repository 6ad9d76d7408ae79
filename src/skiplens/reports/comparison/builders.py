"""A model that is drawn anew for each seed, from a function that takes no seed."""

from collections.abc import Callable

import torch
from torch import nn

from skiplens.core.randomness import Randomness
from skiplens.training.random_state import own_random_state, seed_torch


def drawn_by_seed(build: Callable[[], nn.Module]) -> Callable[[int], nn.Module]:
    """The function from a seed to what `build` returns when torch's generators start at that seed.

    The generators are as before afterwards.
    """

    def drawn(seed: int) -> nn.Module:
        device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
        with own_random_state(device):
            seed_torch(Randomness(seed).child("weights"), device)
            return build()

    return drawn
