"""Pictures of blocks: their singular values in order."""

import torch
from torch import Tensor

from skiplens.explorer.views.jacobians.block import RandomBlocks
from skiplens.explorer.views.jacobians.mnist_blocks import IMAGES, MeasuredBlocks
from skiplens.figures import Figure, Line, Reference
from skiplens.figures.figure import numbers

_CAPTION = (
    "All singular values in order. A curve that lies near one keeps every direction alive; one that touches zero loses "
    "directions."
)


def shrinking_blocks(blocks: RandomBlocks) -> Figure:
    """Blocks that give a quarter of what they take."""
    return _sorted(
        "shrinking_blocks",
        f"Blocks from {blocks.width} to {blocks.outputs} features",
        f"{_CAPTION} The average pool lifts all of them, because all its singular values are one.",
        _spectra(blocks.shrinking()),
    )


def width_keeping_blocks(blocks: RandomBlocks) -> Figure:
    """Blocks that give as much as they take."""
    return _sorted(
        "width_keeping_blocks",
        f"Blocks that keep {blocks.width} features",
        f"{_CAPTION} Half of the chain's are exactly zero: ReLU switches off half of the hidden units.",
        _spectra(blocks.keeping_width()),
    )


def mnist_block(measured: MeasuredBlocks) -> Figure:
    """The measured block of the paper's networks."""
    return _sorted(
        "mnist_block",
        f"Second block of the MNIST networks, {IMAGES} digits",
        f"{_CAPTION} The same weights with four shortcuts: each lifts the spectrum further.",
        measured.singular_values,
    )


def _spectra(jacobians: dict[str, Tensor]) -> dict[str, Tensor]:
    return {name: torch.linalg.svdvals(jacobian) for name, jacobian in jacobians.items()}


def _sorted(name: str, title: str, caption: str, spectra: dict[str, Tensor]) -> Figure:
    return Figure(
        name=name,
        title=title,
        caption=caption,
        x_label="share of directions",
        y_label="singular value",
        marks=(*(_line(values, label) for label, values in spectra.items()), Reference(1.0, "kept as it is")),
    )


def _line(values: Tensor, name: str) -> Line:
    share = (torch.arange(len(values), dtype=torch.float64) + 0.5) / len(values)
    return Line(numbers(share), numbers(values.flip(0)), name)
