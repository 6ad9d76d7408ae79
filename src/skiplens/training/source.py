"""Where the batches of a run come from: samples in memory, a loader, or a function that draws fresh ones."""

import itertools
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sized
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from skiplens.base import InvalidInputError, Randomness, budget_bytes, seed_torch
from skiplens.base.identity import fingerprint
from skiplens.graph.batch import Batch, Batches, as_batch, as_batches
from skiplens.graph.functional import tensors_in

_SAMPLES_IN_FINGERPRINT = 64
PADDING_SHARE = 8  # crops move by at most an eighth of the side: 4 pixels for 32, as is usual for CIFAR
SMALLEST_AREA, LONGEST_SIDE = 0.08, 4 / 3  # of the random part of an image, as is usual for ImageNet


class Source(ABC):
    """Batches by number: the batch of a step is the same however the run came to that step."""

    steps_per_epoch: int

    def batches(self, start: int) -> Iterator[Batch]:
        """The batches of the steps `start`, `start` + 1, … without end, on the model's device."""
        epoch, first = divmod(start, self.steps_per_epoch)
        yield from self._epoch(epoch, first)
        for later in itertools.count(epoch + 1):
            yield from self._epoch(later, 0)

    def fingerprint(self) -> str:
        """A word that tells these data from others, where that can be known beforehand."""
        return "not known beforehand"

    @abstractmethod
    def _epoch(self, epoch: int, first: int) -> Iterator[Batch]:
        """The batches of an epoch from number `first` on."""


def source_of(data: Any, batch_size: int | None, randomness: Randomness, device: torch.device) -> Source:
    """The source that `data` is: a pair `(inputs, targets)`, an iterable of batches, or a function that draws one."""
    if callable(data) and not isinstance(data, Batches):
        return DrawnSource(data, randomness, device)
    batches = as_batches(data)
    if isinstance(batches.source, tuple) and len(batches.source) == 1:
        return SampleSource(next(iter(batches)), batch_size, randomness, device)
    if batch_size is not None:
        raise InvalidInputError(
            f"The recipe asks for batches of {batch_size} samples, but data already comes in batches. "
            "Leave batch_size out, or give all samples as one pair (inputs, targets)."
        )
    return LoaderSource(batches, randomness, device)


class SampleSource(Source):
    """All samples at hand: a new order each epoch, the last batch short where the size does not divide them.

    They are put on the device once where they fit there; otherwise each batch goes there alone. Without a batch size
    every step takes all samples in the order given.
    """

    def __init__(self, samples: Batch, batch_size: int | None, randomness: Randomness, device: torch.device) -> None:
        self.device, self.randomness = device, randomness
        size = sum(tensor.numel() * tensor.element_size() for tensor in batch_tensors(samples))
        self.samples = samples.to(device) if size <= budget_bytes(device) else samples
        self.batch_size = min(batch_size or samples.samples, samples.samples)
        self.steps_per_epoch = -(-samples.samples // self.batch_size)

    def fingerprint(self) -> str:
        """Sixteen hexadecimal digits of the first samples and of how many there are."""
        few = self.samples.first(_SAMPLES_IN_FINGERPRINT)
        numbered = ((str(index), tensor) for index, tensor in enumerate(batch_tensors(few)))
        return f"{self.samples.samples} samples {fingerprint(numbered)}"

    def _epoch(self, epoch: int, first: int) -> Iterator[Batch]:
        if self.steps_per_epoch == 1:
            yield self.samples.to(self.device)
            return
        generator = self.randomness.child("order", epoch).torch()
        order = torch.randperm(self.samples.samples, generator=generator).to(self.samples.targets.device)
        for index in range(first, self.steps_per_epoch):
            chosen = order[index * self.batch_size : (index + 1) * self.batch_size]
            yield self.samples.select(chosen).to(self.device)


class LoaderSource(Source):
    """Batches as an iterable gives them, again and again; a shuffling `DataLoader` draws from the run's randomness."""

    def __init__(self, source: Batches, randomness: Randomness, device: torch.device) -> None:
        self.source, self.randomness, self.device = source, randomness, device
        self.steps_per_epoch = len(source.source) if isinstance(source.source, Sized) else sum(1 for _ in source)

    def _epoch(self, epoch: int, first: int) -> Iterator[Batch]:
        """Those before the first are read and left out."""
        seed_torch(self.randomness.child("loader", epoch), self.device)
        batches = iter(self.source)
        for index in range(self.steps_per_epoch):
            seed_torch(self.randomness.child("loader", epoch, index), self.device)
            batch = next(batches, None)
            if batch is None:
                raise InvalidInputError(
                    f"data gave {index} batches in epoch {epoch} instead of {self.steps_per_epoch}; "
                    "a run needs the same number of batches in each epoch."
                )
            if index >= first:
                yield batch.to(self.device)


class DrawnSource(Source):
    """A fresh batch each step from a function of a generator; each counts as an epoch."""

    steps_per_epoch = 1

    def __init__(self, draw: Callable[[torch.Generator], Any], randomness: Randomness, device: torch.device) -> None:
        self.draw, self.randomness, self.device = draw, randomness, device

    def _epoch(self, epoch: int, first: int) -> Iterator[Batch]:
        drawn = self.draw(self.randomness.child("draw", epoch).torch())
        yield as_batch(drawn, f"the batch drawn for step {epoch}").to(self.device)


def batch_tensors(batch: Batch) -> list[Tensor]:
    """Inputs and targets."""
    return [*tensors_in(batch.inputs), batch.targets]


def augmented(batch: Batch, name: str, randomness: Randomness) -> Batch:
    """The batch with its images changed as the augmentation called `name` says."""
    if name == "none":
        return batch
    generator = randomness.child("augmentation").torch()

    def changed(images: Tensor) -> Tensor:
        if images.ndim != 4:
            raise InvalidInputError(
                f"Augmentation wants images of shape (samples, channels, height, width), got {tuple(images.shape)}; "
                "set augmentation='none' for other inputs."
            )
        for change in _CHANGES[name]:
            images = change(images, generator)
        return images

    return batch.map_inputs(changed)


def flip(images: Tensor, generator: torch.Generator) -> Tensor:
    """Each image as it is or mirrored left to right, with even chances."""
    return mirrored(images, (torch.rand(len(images), generator=generator) < 0.5).to(images.device))


def mirrored(images: Tensor, which: Tensor) -> Tensor:
    """The images, those of `which` mirrored."""
    return torch.where(which[:, None, None, None], images.flip(-1), images)


def crop(images: Tensor, generator: torch.Generator) -> Tensor:
    """Each image moved by up to an eighth of its side in each direction, with zeros from outside."""
    padding = max(images.shape[2:]) // PADDING_SHARE
    return moved(images, *torch.randint(2 * padding + 1, (2, len(images)), generator=generator).to(images.device))


def moved(images: Tensor, down: Tensor, right: Tensor) -> Tensor:
    """Each image framed with an eighth of its side, and cut to its size from these places on."""
    count, _, height, width = images.shape
    padded = F.pad(images, (max(height, width) // PADDING_SHARE,) * 4)
    rows = down[:, None] + torch.arange(height, device=images.device)
    columns = right[:, None] + torch.arange(width, device=images.device)
    samples = torch.arange(count, device=images.device)[:, None, None]
    return padded[samples, :, rows[:, :, None], columns[:, None, :]].permute(0, 3, 1, 2).contiguous()


def drawn_changes(count: int, side: int, generator: torch.Generator) -> Tensor:
    """What `crop_flip` draws for images of this side: rows and columns to begin at, and whether each is mirrored."""
    places = torch.randint(2 * (side // PADDING_SHARE) + 1, (2, count), generator=generator)
    return torch.cat([places, (torch.rand(count, generator=generator) < 0.5).long()[None]])


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
    grid = F.affine_grid(theta, [count, 1, height * 7 // 8, width * 7 // 8], align_corners=False)
    return F.grid_sample(images, grid, padding_mode="border", align_corners=False)


_CHANGES: dict[str, tuple[Callable[[Tensor, torch.Generator], Tensor], ...]] = {
    "flip": (flip,),
    "crop_flip": (crop, flip),
    "resized_crop_flip": (resized_crop, flip),
}
