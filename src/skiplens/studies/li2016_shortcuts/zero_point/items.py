"""Theorem 2 as an item of the study."""

from skiplens.studies.li2016_shortcuts.card import QUANTILE, SMOKE_IMAGES
from skiplens.studies.li2016_shortcuts.zero_point.claims import CLAIMS
from skiplens.studies.li2016_shortcuts.zero_point.figures import figures
from skiplens.studies.li2016_shortcuts.zero_point.settings import runs
from skiplens.studies.raw_tables import raw_tables
from skiplens.studies.study import Item

_DEVIATIONS = (
    "The theorem gives no example: here 20 Gaussian inputs of width 3 with random labels, and whitened digits.",
    "The digits' principal components have random signs: the paper gives no rule, and the shortcut ties component i to "
    "class i.",
    QUANTILE,
    SMOKE_IMAGES,
)

ITEMS = (Item("thm2", "Hessians at zero", runs, CLAIMS, figures, raw_tables, _DEVIATIONS),)
