"""Readings made by hand, for tests of what is done with readings."""

import torch

from skiplens.readings import Provenance, StructureReading


def structure(blocks: int = 2, **changes) -> StructureReading:
    """A network of `blocks` blocks; every second shortcut is a projection with three parameters."""
    values = {
        "model": "Net",
        "structure": "residual",
        "parameters": 10,
        "trainable_parameters": 10,
        "buffers": 0,
        "dtype": "float32",
        "training": False,
        "input_shapes": ("1 × 3",),
        "output_shape": "1 × 2",
        "operations": 4,
        "block_names": tuple("abcdefghijklmnopqrstuvwxyz"[:blocks]),
        "joins": tuple(f"add_{index}" for index in range(blocks)),
        "shortcuts": tuple("projection" if index % 2 else "identity" for index in range(blocks)),
        "branch_depths": torch.full((blocks,), 2),
        "branch_parameters": torch.arange(blocks) + 3,
        "shortcut_parameters": 3 * (torch.arange(blocks) % 2),
        "parents": (None,) * blocks,
        "dense_joins": (),
        "provenance": Provenance.begin({"lens": "structure"}, seed=0).end(),
    }
    return StructureReading(**(values | changes))
