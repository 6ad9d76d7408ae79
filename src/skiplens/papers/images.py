"""The images that studies train on: a data set or a folder that is at hand, or digits in their place."""

import os
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F

from skiplens.base import DataError, Randomness
from skiplens.data import ImageSet, LoadOptions, Standardisation, load, measure_channels, sample
from skiplens.data.fetch import get, place_of, user_folder
from skiplens.data.synthetic import CentredBatches, ShuffledBatches
from skiplens.graph.batch import Batch
from skiplens.sweeps.run import Needs
from skiplens.training import Recipe

DIGITS, IMAGENET = "digits", "imagenet"
NOT_DONE = "None of these runs is stored, and this machine has no GPU to do them."


@dataclass(frozen=True)
class Portion:
    """How much of a data set is used: images of both splits (none: all) and pixels a side (none: as they are)."""

    training: int | None = None
    test: int | None = None
    side: int | None = None


def needs(gpu: bool) -> Needs:
    """What a training run on images needs: on a GPU, memory for CIFAR as float32, twice, and what comes with it."""
    return Needs(gpus=1, memory=4 * 2**30) if gpu else Needs()


def recipe(settings: Any, stream: Randomness, **own: Any) -> Recipe:
    """The training of a run on images, cropped and flipped; on a GPU in bfloat16, replayed as a CUDA graph."""
    own |= {name: getattr(settings, name) for name in ("batch_size", "epochs", "milestones")}
    own |= {"precision": "bfloat16" if settings.gpu else "full", "channels_last": settings.gpu}
    return Recipe(**own, augmentation="crop_flip", cuda_graph=settings.gpu, seed=stream.child("training").entropy())


def missing(name: str) -> str:
    """Why the data set `name` cannot be trained on here and how to get it; empty where it is at hand."""
    if name == DIGITS:
        return ""
    if name == IMAGENET:
        return "" if _imagenet() else _IMAGENET_WANTED
    return "" if place_of(name) else f"{name} is not on this machine; get it with: skiplens data get {name}"


@lru_cache(maxsize=2)
def training_and_test(name: str, portion: Portion, batch_size: int, device: str = "cpu") -> tuple[Any, Any]:
    """Training and test data as `train` and `evaluate` take them: float32, standardised as the training images are.

    The name is that of a data set of the catalogue, "imagenet" (a folder) or "digits" (embedded). Images in memory stay
    on the device for all runs of this process and are cut into batches later; `batch_size` is for those on disk.
    """
    if name == IMAGENET:
        return _from_folder(portion, batch_size)
    if name == DIGITS:
        training, test = _digits(portion)
    else:
        training, test = get(name, split="train"), get(name, split="test")
        training = training if portion.training is None else training.first(portion.training)
        test = test if portion.test is None else test.first(portion.test)
    standardise = measure_channels(training.images.split(1000))
    first, second = (_batch(images, standardise, portion.side).to(device) for images in (training, test))
    return first, second


_IMAGENET_WANTED = (
    "ImageNet is not on this machine: put its images into imagenet/train/CLASS/ and imagenet/val/CLASS/ and name the "
    "folder above with SKIPLENS_DATA."
)


def _imagenet() -> Path | None:
    """The user's folder of ImageNet, or None; any images in such folders do."""
    try:
        above = user_folder(None)
    except DataError:
        return None
    folder = None if above is None else above / "imagenet"
    return folder if folder and all((folder / split).is_dir() for split in ("train", "val")) else None


def _from_folder(portion: Portion, batch_size: int) -> tuple[ShuffledBatches, CentredBatches]:
    folder = _imagenet()
    if folder is None:
        raise DataError(_IMAGENET_WANTED)
    training, test = (
        load(os.fspath(folder / split), LoadOptions(batch_size=batch_size, samples=count, image_size=portion.side))
        for split, count in (("train", portion.training), ("val", portion.test))
    )
    assert training.standardisation is not None, "asked for by default"
    return ShuffledBatches(training, training.standardisation), CentredBatches(test, training.standardisation)


def _digits(portion: Portion) -> tuple[ImageSet, ImageSet]:
    """The first of the embedded digits to train with and the last ones to test with, framed to the size of CIFAR."""
    bare = sample()
    # Two black pixels on each side: 28 + 2 · 2 = 32 can be halved as often as a network wants.
    digits = ImageSet(F.pad(bare.images, (2, 2, 2, 2)), bare.labels, bare.classes)
    count = portion.test or len(digits) // 10
    last = digits.select(torch.arange(len(digits) - count, len(digits)))
    return digits.first(min(portion.training or len(digits), len(digits) - count)), last


def _batch(images: ImageSet, standardise: Standardisation, side: int | None) -> Batch:
    """Standardised images in three colours; `side` is rounded down to one that means over squares of pixels give."""
    pixels = standardise(images.images, torch.float32)
    if side is not None:
        pixels = F.avg_pool2d(pixels, max(1, pixels.shape[-1] // side))
    if pixels.shape[1] != 3:
        pixels = pixels.expand(-1, 3, -1, -1).contiguous()
    return Batch(pixels, images.labels)
