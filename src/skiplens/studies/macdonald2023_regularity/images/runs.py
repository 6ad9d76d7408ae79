"""The runs of each item; a data set that is not here has none."""

import dataclasses
from collections.abc import Iterable

from skiplens.studies.images import missing, needs
from skiplens.studies.macdonald2023_regularity.images.settings import CLASSES, SHOWN, Data, ImageTraining, Sizes
from skiplens.studies.replicates import replicated
from skiplens.sweeps import Run

MEASURE = "skiplens.studies.macdonald2023_regularity.images.measure:image_training"
IMAGENET_BATCH, IMAGENET_TRIALS = 256, 3
SMALL_IMAGENET_SIDE = 37
"""Where images are small: random parts have 7/8 of the side, 32 pixels, which can be halved five times."""


def compared(data: Data, sizes: Sizes, seed: int, learning_rates: Iterable[float]) -> list[Run]:
    """Original and modified networks on one data set; none where it is not on this machine."""
    stands_in = sizes.digits and data != "imagenet"
    if not stands_in and missing(data):
        return []
    base = _base(data, sizes, stands_in)
    trials = min(sizes.trials, IMAGENET_TRIALS) if data == "imagenet" else sizes.trials
    found = replicated(MEASURE, base, trials, seed, _cost, learning_rate=tuple(learning_rates), modified=(False, True))
    return [dataclasses.replace(run, needs=needs(sizes.gpu)) for run in found]


def all_rates(data: Data, sizes: Sizes, seed: int) -> list[Run]:
    """At all learning rates of the preset."""
    return compared(data, sizes, seed, sizes.learning_rates)


def shown_rates(sizes: Sizes, seed: int) -> list[Run]:
    """All data sets, each at the learning rate of figure 3."""
    return [run for data, rate in SHOWN.items() for run in compared(data, sizes, seed, (rate,))]


def _base(data: Data, sizes: Sizes, stands_in: bool) -> ImageTraining:
    third = max(1, sizes.epochs // 3)
    return ImageTraining(
        data="digits" if stands_in else data,
        classes=CLASSES[data],
        epochs=sizes.epochs,
        milestones=tuple(sorted({third, 2 * third})),
        images=sizes.images,
        test_images=sizes.test_images,
        side=SMALL_IMAGENET_SIDE if data == "imagenet" and sizes.side else sizes.side,
        width=sizes.width,
        batch_size=IMAGENET_BATCH if data == "imagenet" and sizes.images is None else sizes.batch_size,
        gpu=sizes.gpu,
    )


def _cost(settings: ImageTraining) -> float:
    return settings.epochs * (settings.images or 50_000) * settings.width**2 / 1e6
