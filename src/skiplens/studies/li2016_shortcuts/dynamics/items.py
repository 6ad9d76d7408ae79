"""Figures 5 and 6 as items of the study."""

from skiplens.studies.li2016_shortcuts.card import DEPTH, QUANTILE, SIGNS, SMOKE_IMAGES
from skiplens.studies.li2016_shortcuts.dynamics import conditions, indices
from skiplens.studies.li2016_shortcuts.dynamics.figures import fig5, fig6
from skiplens.studies.li2016_shortcuts.dynamics.settings import descents, spectra
from skiplens.studies.raw_tables import raw_tables
from skiplens.studies.study import Item, Preset
from skiplens.sweeps import Run

_DEVIATIONS = (
    "The paper gives no learning rates and no number of runs: here 0.1 with shortcuts of length 2, 0.01 for orthogonal "
    "and 1-shortcut networks, 10^-1.75 for Xavier's; curves against the loss hardly depend on them.",
    "The smoke preset has depth 6 instead of 16, and decides nothing about training.",
    DEPTH,
    QUANTILE,
    SIGNS,
    SMOKE_IMAGES,
)


def _fig6_runs(preset: Preset, seed: int) -> list[Run]:
    return [*spectra(preset, seed), *descents(preset, seed)]


ITEMS = (
    Item("fig5", "eigenvalues along training", spectra, conditions.CLAIMS, fig5, raw_tables, _DEVIATIONS),
    Item("fig6", "index and gradient along training", _fig6_runs, indices.CLAIMS, fig6, raw_tables, _DEVIATIONS),
)
