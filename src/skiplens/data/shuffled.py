"""Batches of images on disk in a new order each epoch, and the centres of images to test with."""

from collections.abc import Iterator
from dataclasses import dataclass

import torch

from skiplens.data.batch import Batch
from skiplens.data.load import ImageBatches
from skiplens.data.standardise import Standardisation


@dataclass(frozen=True, eq=False)
class ShuffledBatches:
    """The same images in a new order each time they are gone through, standardised, as float32.

    The order is drawn from torch's generator, as a shuffling `DataLoader` draws it: a training run seeds that for each
    epoch.
    """

    images: ImageBatches
    standardisation: Standardisation

    def __len__(self) -> int:
        """The number of batches."""
        return len(self.images)

    def __iter__(self) -> Iterator[Batch]:
        """Each batch; the last may be short."""
        order = self.images.order[: self.images.samples]
        shuffled = order[torch.randperm(len(order))]
        for images, labels in self.images.source.stream(shuffled, self.images.options.batch_size):
            yield Batch(self.standardisation(images, torch.float32), labels)


@dataclass(frozen=True, eq=False)
class CentredBatches:
    """The middle of each image, 7/8 of its side, standardised, as float32: what random parts are tested with."""

    images: ImageBatches
    standardisation: Standardisation

    def __iter__(self) -> Iterator[Batch]:
        """Each batch, in the same order every time."""
        order = self.images.order[: self.images.samples]
        for images, labels in self.images.source.stream(order, self.images.options.batch_size):
            side = images.shape[-1]
            kept = side * 7 // 8
            start = (side - kept) // 2
            middle = images[..., start : start + kept, start : start + kept]
            yield Batch(self.standardisation(middle, torch.float32), labels)
