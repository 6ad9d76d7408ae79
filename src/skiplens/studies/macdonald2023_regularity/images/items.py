"""The items of figures 3 to 6 and tables 1 to 3; a figure and its table share their runs."""

from collections.abc import Mapping
from functools import partial

from skiplens.studies.claim import Claim
from skiplens.studies.macdonald2023_regularity.images import claims, figures, runs
from skiplens.studies.macdonald2023_regularity.images.settings import SIZES, Data, Sizes
from skiplens.studies.macdonald2023_regularity.images.tables import tables
from skiplens.studies.study import Item, Preset
from skiplens.sweeps import Run

SMALL = (
    "Only the paper preset (one GPU) trains the paper's networks. smoke takes embedded digits, laptop 256 images of "
    "16×16 pixels and a network of an eighth of the width, both for two or three epochs: they show that everything "
    "runs and decide nothing."
)
PROGRAM = (
    "As in the authors' program and unlike the text: no momentum, no weight decay, the learning rate falls to a fifth "
    "after epochs 30 and 60 of 90, images are mirrored left to right, and test accuracy is taken with the "
    "statistics of test batches of 1,000 (it is recorded with running statistics as well)."
)
PRECISION = "On a GPU the passes are in bfloat16 with weights in float32; crops are padded with the mean colour."
PAIRED = "Both networks of a trial see the same batches and augmentations, and differences are taken within trials."
_CIFAR = (SMALL, PROGRAM, PAIRED, PRECISION)
_IMAGENET = (
    "Trained on the folder imagenet/ (train/ and val/) below SKIPLENS_DATA, if there is one.",
    "Random parts are taken from the centred square of 256 pixels, not from the whole image.",
    "The authors' program for ImageNet cannot be run as published (class count, stem and pooling do not fit): here the "
    "usual stem (7×7, stride 2, max pool) and a global average pool.",
    PAIRED,
    PRECISION,
)


def items(sizes: Mapping[Preset, Sizes], deviations: tuple[str, ...] = ()) -> tuple[Item, ...]:
    """All items, with runs as large as `sizes` says and further deviations."""
    shown = Item(
        "fig3",
        "training curves at the best learning rates",
        lambda preset, seed: runs.shown_rates(sizes[preset], seed),
        claims.FIG3,
        figures.shown_curves,
        tables,
        (*_CIFAR, *_IMAGENET[:-2], *deviations),
    )
    by_data: list[Item] = []
    for data, names, (curves, cells), own in _BY_DATA:
        rates = partial(_rates, sizes=sizes, data=data)
        place = f"{claims.NAMES[data]}, all learning rates"
        draw = partial(figures.rate_curves, data=data, name=f"Figure {names[0][-1]}")
        final = partial(figures.final_losses, data=data, name=f"Table {names[1][-1]}")
        said = (*own, *deviations)
        by_data += [
            Item(names[0], f"training curves on {place}", rates, curves, draw, tables, said),
            Item(names[1], f"final losses and accuracies on {place}", rates, cells, final, tables, said),
        ]
    return (shown, *by_data)


def _rates(preset: Preset, seed: int, sizes: Mapping[Preset, Sizes], data: Data) -> list[Run]:
    return runs.all_rates(data, sizes[preset], seed)


_BY_DATA: tuple[tuple[Data, tuple[str, str], tuple[tuple[Claim, ...], tuple[Claim, ...]], tuple[str, ...]], ...] = (
    ("cifar10", ("fig4", "table1"), (claims.FIG4, claims.TABLE1), _CIFAR),
    ("cifar100", ("fig5", "table2"), (claims.FIG5, claims.TABLE2), _CIFAR),
    ("imagenet", ("fig6", "table3"), (claims.FIG6, claims.TABLE3), _IMAGENET),
)

ITEMS = items(SIZES)
