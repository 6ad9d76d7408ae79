"""The items of figures 2 and 9."""

from collections.abc import Mapping

from skiplens.studies.li2016_shortcuts.images import claims, figures, runs
from skiplens.studies.li2016_shortcuts.images.settings import SIZES, Sizes
from skiplens.studies.raw_tables import raw_tables
from skiplens.studies.study import Item, Preset

SMALL = (
    "Only the paper preset (one GPU) trains the paper's networks. smoke takes embedded digits, laptop 128 images of "
    "16×16 pixels, both networks of a quarter of the width for one or two epochs: they show that everything runs and "
    "decide what holds at every size."
)
PROGRAM = (
    "As in the public program: Nesterov momentum 0.9, weight decay 1e-4, batches of 128, convolutions from "
    "N(0, 2/(9 outputs)); unlike its stored version every unit begins with batch norm and ReLU, and shortcuts where "
    "the width changes are strided and padded with zeros, so that all shortcut depths have the same parameters."
)
PRECISION = "On a GPU the passes are in bfloat16 with weights in float32."
_COMMON = (SMALL, PROGRAM, PRECISION)


def items(sizes: Mapping[Preset, Sizes], deviations: tuple[str, ...] = ()) -> tuple[Item, ...]:
    """Both items, with runs as large as `sizes` says and further deviations."""
    return (
        Item(
            "fig2",
            "Frobenius norms of CIFAR-10 ResNets during training",
            lambda preset, seed: runs.fig2(sizes[preset], seed),
            claims.FIG2,
            figures.fig2,
            raw_tables,
            (*_COMMON, "The paper trains each network once, here several times.", *deviations),
        ),
        Item(
            "fig9",
            "CIFAR-10 test error against depth for several shortcut depths",
            lambda preset, seed: runs.fig9(sizes[preset], seed),
            claims.FIG9,
            figures.fig9,
            raw_tables,
            (*_COMMON, "The paper gives no depths: here 36 q + 2, which all shortcut depths divide.", *deviations),
        ),
    )


ITEMS = items(SIZES)
