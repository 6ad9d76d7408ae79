"""How many samples a lens can afford: from counted operations, so that a model gets the same ones on every machine."""

import torch
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

from skiplens.core.untouched import untouched
from skiplens.data.batch import Batch

OPERATIONS = 1e12
"""Floating operations that one lens may take: some twenty seconds on two cores."""


def operations_of(model: nn.Module, batch: Batch) -> float:
    """Floating operations of one forward pass of one sample, those of matrix products and convolutions."""
    few = batch.first(2)  # batch norm in training mode refuses a single sample
    with untouched(model), torch.no_grad(), FlopCounterMode(display=False) as counter:
        few.arguments().call(model)
    return counter.get_total_flops() / few.samples


def affordable(operations: float, passes: float, most: int, least: int = 1) -> int:
    """As many samples, up to `most`, as leave `passes` forward passes within the operations that a lens may take."""
    return max(least, min(most, int(OPERATIONS / max(1.0, operations * passes))))


def cut_note(looked_at: int, wanted: int) -> tuple[str, ...]:
    """What to tell where fewer samples were looked at than usual."""
    if looked_at >= wanted:
        return ()
    return (f"A pass through this model is costly, so {looked_at} instead of {wanted} samples were looked at.",)
