"""Figure 3 as an item of the study."""

from skiplens.studies.li2016_shortcuts.card import DEPTH, SIGNS, SMOKE_IMAGES
from skiplens.studies.li2016_shortcuts.norms.claims import CLAIMS
from skiplens.studies.li2016_shortcuts.norms.figures import figures
from skiplens.studies.li2016_shortcuts.norms.settings import runs
from skiplens.studies.raw_tables import raw_tables
from skiplens.studies.study import Item

_DEVIATIONS = (
    "The paper gives no depths, no learning rate and no number of runs for figure 3: here a rate of 0.1 and 20 "
    "networks of each depth.",
    "Networks with ReLU are trained in float32 on the first 1,000 digits (200 at smoke, all at paper), whitened by "
    "themselves.",
    DEPTH,
    SIGNS,
    SMOKE_IMAGES,
)

ITEMS = (Item("fig3", "norms during training", runs, CLAIMS, figures, raw_tables, _DEVIATIONS),)
