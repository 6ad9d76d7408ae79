"""Figures 7 and 8 as items of the study."""

from collections.abc import Iterator, Sequence
from typing import Any

from skiplens.readings import Measurement
from skiplens.studies.li2016_shortcuts.card import DEPTH, SIGNS, SMOKE_IMAGES
from skiplens.studies.li2016_shortcuts.learning_rates import figures, settings
from skiplens.studies.li2016_shortcuts.learning_rates.linear_claims import FIG7
from skiplens.studies.li2016_shortcuts.learning_rates.optima import final_losses
from skiplens.studies.li2016_shortcuts.learning_rates.rectified_claims import FIG8
from skiplens.studies.raw_tables import raw_tables
from skiplens.studies.study import Item, Table

_COMMON = (
    DEPTH,
    SIGNS,
    "The paper does not say which learning rates it tries nor how many runs it averages: here the rates are powers of "
    "ten in equal steps, and intervals are over independent starts.",
    "The learning rate is chosen by the mean loss over the starts, as in the paper, and its claims are judged by the "
    "logarithms there, 10^-8 being the least: means of losses depend on the worst start alone.",
)
_LINEAR = (
    *_COMMON,
    SMOKE_IMAGES,
    "Linear networks are trained on the second moments of the images, which gives exactly the same steps.",
    "Depths of 3-shortcut networks are the multiples of three beside the others' depths.",
)
_RECTIFIED = (
    *_COMMON,
    "The first 1,000 training images instead of 60,000, whitened by themselves, in float32; the paper preset takes "
    "all, the smoke preset 250.",
)


def tables(readings: Sequence[Measurement]) -> tuple[Table, ...]:
    """A row for each learning rate and start."""
    return raw_tables(readings, _rows)


def _rows(reading: Measurement) -> Iterator[dict[str, Any]]:
    for exponent, row in zip(reading.setting("exponents"), final_losses(reading), strict=True):
        for network, loss in enumerate(row.tolist()):
            yield {"exponents": exponent, "learning_rate": 10**exponent, "network": network, "final_loss": loss}


ITEMS = (
    Item("fig7", "best final losses and learning rates, linear", settings.fig7, FIG7, figures.fig7, tables, _LINEAR),
    Item("fig8", "best final losses and learning rates, ReLU", settings.fig8, FIG8, figures.fig8, tables, _RECTIFIED),
)
