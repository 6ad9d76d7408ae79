"""Images in the form a network takes: scaled where it takes images, flattened or whitened where it takes vectors."""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from skiplens.core.errors import InvalidInputError
from skiplens.data.batch import Batch
from skiplens.data.images import ImageSet
from skiplens.data.load import ImageBatches
from skiplens.data.whitening import fit_whitening


@dataclass(frozen=True)
class FittedBatches:
    """Batches that can be gone through again and again, and how they were made to fit, in words."""

    stream: Callable[[], Iterator[Batch]]
    description: str

    def __iter__(self) -> Iterator[Batch]:
        """Each batch."""
        return self.stream()


def fit_to(images: ImageBatches, shape: tuple[int, ...]) -> FittedBatches:
    """The images as samples of `shape`.

    (channels, height, width) scales them and repeats or averages channels; (features,) flattens them where that gives
    as many features, and else whitens to that many principal components.
    """
    if tuple(shape) == images.shape:
        return FittedBatches(lambda: iter(images), images.name)
    if len(shape) == 3:
        return _changed(images, lambda inputs: _as_images(inputs, shape), f"scaled to {_times(shape)}")
    if shape == (math.prod(images.shape),):
        return _changed(images, lambda inputs: inputs.flatten(1), "flattened")
    if len(shape) == 1 and isinstance(images.source, ImageSet):
        return _whitened(images, images.source, shape[0])
    raise InvalidInputError(
        f"{images.name} cannot be brought to samples of shape {_times(shape)}: known forms are (channels, height, "
        "width) and, for images in memory, (features,). Give your own data as path/file.py:function."
    )


def _changed(images: ImageBatches, change: Callable[[Tensor], Tensor], how: str) -> FittedBatches:
    return FittedBatches(lambda: (batch.map_inputs(change) for batch in images), f"{images.name}, {how}")


def _whitened(images: ImageBatches, source: ImageSet, components: int) -> FittedBatches:
    white = fit_whitening(source.images, components)

    def stream() -> Iterator[Batch]:
        for pixels, labels in source.stream(images.order[: images.samples], images.options.batch_size):
            yield Batch(white(pixels).to(torch.get_default_dtype()), labels)

    return FittedBatches(stream, f"{images.name}, whitened to {components} principal components")


def _as_images(inputs: Tensor, shape: tuple[int, ...]) -> Tensor:
    channels, height, width = shape
    scaled = F.interpolate(inputs, (height, width), mode="bilinear", antialias=True)
    if scaled.shape[1] != channels:
        scaled = scaled.mean(1, keepdim=True).expand(-1, channels, -1, -1)
    return scaled.contiguous()


def _times(shape: tuple[int, ...]) -> str:
    return "×".join(map(str, shape))
