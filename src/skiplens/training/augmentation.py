"""Random changes of a batch of images, drawn anew at each step, all samples at once and on their device."""

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor

from skiplens.core.errors import InvalidInputError
from skiplens.core.randomness import Randomness
from skiplens.data.batch import Batch

PADDING_SHARE = 8
"""Crops move by at most an eighth of the side: 4 pixels for 32, as is usual for CIFAR."""


def augmented(batch: Batch, name: str, randomness: Randomness) -> Batch:
    """The batch with its images changed as the augmentation called `name` says."""
    if name == "none":
        return batch
    generator = randomness.child("augmentation").torch()
    return batch.map_inputs(lambda images: _CHANGES[name](_images(images), generator))


def flip(images: Tensor, generator: torch.Generator) -> Tensor:
    """Each image as it is or mirrored left to right, with even chances."""
    mirrored = torch.rand(len(images), generator=generator) < 0.5
    return torch.where(mirrored.to(images.device)[:, None, None, None], images.flip(-1), images)


def crop(images: Tensor, generator: torch.Generator) -> Tensor:
    """Each image moved by up to an eighth of its side in each direction, with zeros from outside."""
    count, _, height, width = images.shape
    padding = max(height, width) // PADDING_SHARE
    padded = F.pad(images, (padding,) * 4)
    down, right = torch.randint(2 * padding + 1, (2, count), generator=generator).to(images.device)
    rows = down[:, None] + torch.arange(height, device=images.device)
    columns = right[:, None] + torch.arange(width, device=images.device)
    samples = torch.arange(count, device=images.device)[:, None, None]
    return padded[samples, :, rows[:, :, None], columns[:, None, :]].permute(0, 3, 1, 2).contiguous()


def crop_flip(images: Tensor, generator: torch.Generator) -> Tensor:
    """Each image moved and then mirrored or not."""
    return flip(crop(images, generator), generator)


_CHANGES: dict[str, Callable[[Tensor, torch.Generator], Tensor]] = {"flip": flip, "crop_flip": crop_flip}


def _images(tensor: Tensor) -> Tensor:
    if tensor.ndim != 4:
        raise InvalidInputError(
            f"Augmentation wants images of shape (samples, channels, height, width), got {tuple(tensor.shape)}; "
            "set augmentation='none' for other inputs."
        )
    return tensor
