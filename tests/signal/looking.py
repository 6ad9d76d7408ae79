"""Look at a model with the signal lens, in one call."""

from typing import Any

import torch
from torch import nn

from skiplens.base.randomness import Randomness
from skiplens.graph.batch import Batch
from skiplens.graph.lens import Subject
from skiplens.signal.lens import SignalLens
from skiplens.signal.reading import SignalReading


def look(model: nn.Module, inputs: Any, seed: int = 0, **options: Any) -> SignalReading:
    """The reading of `model` on `inputs`; targets do not matter."""
    several = inputs.values() if isinstance(inputs, dict) else inputs
    first = inputs if isinstance(inputs, torch.Tensor) else next(iter(several))
    batch = Batch(inputs, torch.zeros(len(first), dtype=torch.int64))
    return SignalLens(**options)(Subject(model, batch, "net"), Randomness(seed))
