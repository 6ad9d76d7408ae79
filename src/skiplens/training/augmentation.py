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


SMALLEST_AREA, LONGEST_SIDE = 0.08, 4 / 3
"""Of the random part of an image, as is usual for ImageNet."""


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


def resized_crop(images: Tensor, generator: torch.Generator) -> Tensor:
    """A random part of each image, 8 to 100 % of its area with sides as 3:4 to 4:3, scaled to 7/8 of the image's side.

    The usual change of ImageNet: images of 256 pixels a side become 224. A part that would be longer than the image is
    cut to its side.
    """
    count, _, height, width = images.shape
    area, ratio, *place = torch.rand(4, count, generator=generator)
    share = torch.lerp(torch.tensor(SMALLEST_AREA), torch.tensor(1.0), area)
    longer = (LONGEST_SIDE ** (2 * ratio - 1)).sqrt()  # log-uniform ratio
    sides = torch.stack([share.sqrt() * longer, share.sqrt() / longer]).clamp(max=1)
    centres = (torch.stack(place) * 2 - 1) * (1 - sides)
    # rows of the maps from places in the result, -1 to 1, to places in the image
    theta = torch.cat([torch.diag_embed(sides.T), centres.T[:, :, None]], 2).to(images)
    size = (height * 7 // 8, width * 7 // 8)
    grid = F.affine_grid(theta, [count, 1, *size], align_corners=False)
    return F.grid_sample(images, grid, padding_mode="border", align_corners=False)


def resized_crop_flip(images: Tensor, generator: torch.Generator) -> Tensor:
    """A random part of each image, mirrored or not."""
    return flip(resized_crop(images, generator), generator)


_CHANGES: dict[str, Callable[[Tensor, torch.Generator], Tensor]] = {
    "flip": flip,
    "crop_flip": crop_flip,
    "resized_crop_flip": resized_crop_flip,
}


def _images(tensor: Tensor) -> Tensor:
    if tensor.ndim != 4:
        raise InvalidInputError(
            f"Augmentation wants images of shape (samples, channels, height, width), got {tuple(tensor.shape)}; "
            "set augmentation='none' for other inputs."
        )
    return tensor
