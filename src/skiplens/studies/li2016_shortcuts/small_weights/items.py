"""Theorem 1 as an item of the study."""

from skiplens.studies.li2016_shortcuts.small_weights.claims import CLAIMS
from skiplens.studies.li2016_shortcuts.small_weights.figures import figures
from skiplens.studies.li2016_shortcuts.small_weights.settings import runs
from skiplens.studies.raw_tables import raw_tables
from skiplens.studies.study import Item

_DEVIATIONS = (
    "The theorem gives no example: here 6 random unit vectors of width 10, each with a label of its own.",
    "The n of equations (6), (7) and (20) is the number of units R, and assumption 1's n ≥ 3 is d_x ≥ 3, which lemma 2 "
    "needs: shortcuts have length 2 throughout.",
    "Samples that share labels are moved by units with two hidden neurons, at twice the norms: the printed unit "
    "magnifies rounding exponentially where points are near to each other.",
)

ITEMS = (Item("thm1", "the explicit small-weight network", runs, CLAIMS, figures, raw_tables, _DEVIATIONS),)
