"""Instructions on fixed buffers: bound once, played again each epoch."""

from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor

Instruction = Callable[[], Any]


def product(left: Tensor, right: Tensor, out: Tensor) -> Instruction:
    """The instruction ``out = left @ right`` for stacks of small matrices.

    On the processor NumPy does it: its BLAS multiplies stacks of 10×10 matrices twice as fast as `torch.bmm` (110
    against 250 ns a product on one core of an EPYC), and each product has the same bits wherever it lies in the stack.
    """
    if out.device.type == "cpu":
        return partial(np.matmul, left.numpy(), right.numpy(), out.numpy())
    return partial(torch.matmul, left, right, out=out)


def play(instructions: Iterable[Instruction]) -> None:
    """Do the instructions in their order; networks that overflow do so without a word."""
    with np.errstate(all="ignore"):
        for instruction in instructions:
            instruction()
