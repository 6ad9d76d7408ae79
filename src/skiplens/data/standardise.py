"""Channel-wise standardisation: subtract each channel's mean, divide by its standard deviation."""

from collections.abc import Iterable
from dataclasses import dataclass

import torch
from torch import Tensor

from skiplens.core.errors import InvalidInputError
from skiplens.data.images import as_floats


@dataclass(frozen=True)
class Standardisation:
    """Mean and standard deviation of each channel, of pixels in [0, 1]."""

    mean: tuple[float, ...]
    std: tuple[float, ...]

    def __call__(self, images: Tensor, dtype: torch.dtype | None = None) -> Tensor:
        """The standardised images (samples, channels, height, width); bytes count as pixels, 255 being 1."""
        self._require_channels(images)
        pixels = as_floats(images, dtype) if images.dtype == torch.uint8 else images
        mean, std = (pixels.new_tensor(values)[:, None, None] for values in (self.mean, self.std))
        return (pixels - mean) / std

    def undo(self, standardised: Tensor) -> Tensor:
        """The pixels in [0, 1] that `standardised` was made from."""
        self._require_channels(standardised)
        mean, std = (standardised.new_tensor(values)[:, None, None] for values in (self.mean, self.std))
        return standardised * std + mean

    def _require_channels(self, images: Tensor) -> None:
        if images.ndim < 3 or images.shape[-3] != len(self.mean):
            raise InvalidInputError(
                f"These statistics are for {len(self.mean)} channels (…, channels, height, width); got images of shape "
                f"{tuple(images.shape)}."
            )


def measure_channels(stacks: Iterable[Tensor]) -> Standardisation:
    """The statistics of all pixels in `stacks` of uint8 images (samples, channels, height, width), exact to rounding.

    Bytes are counted, not added: the sums are of integers. The standard deviation has the factor 1/count. A constant
    channel gets the standard deviation 1, so it becomes 0 and not a division by zero.
    """
    counts = None
    for stack in stacks:
        counted = torch.stack([torch.bincount(channel.flatten(), minlength=256) for channel in stack.unbind(1)])
        counts = counted if counts is None else counts + counted
    if counts is None or not counts.any():
        raise InvalidInputError("There are no images to measure channels of; give at least one.")
    values = torch.arange(256, dtype=torch.float64) / 255
    weights = counts.double() / counts.sum(1, keepdim=True)
    mean = weights @ values
    deviation = (weights * (values - mean[:, None]) ** 2).sum(1).sqrt()
    std = torch.where(deviation > 0, deviation, 1.0)
    return Standardisation(tuple(mean.tolist()), tuple(std.tolist()))
