"""Figure 4 as an item of the study."""

from skiplens.studies.li2016_shortcuts.card import DEPTH, QUANTILE, SIGNS, SMOKE_IMAGES
from skiplens.studies.li2016_shortcuts.initial_point.claims import CLAIMS, LIMIT
from skiplens.studies.li2016_shortcuts.initial_point.figures import figures
from skiplens.studies.li2016_shortcuts.initial_point.settings import runs
from skiplens.studies.raw_tables import raw_tables
from skiplens.studies.study import Item

_DEVIATIONS = (
    "The paper gives no depths for figure 4: here 2, 4, 8, … matrices, up to 8 (smoke), 16 (laptop) or 96 (paper).",
    "The paper has 10 runs of each network, here are 10 (smoke), 16 (laptop) or 20 (paper).",
    f"Condition numbers above {LIMIT:g} are shown as {LIMIT:g}: float64 cannot tell them from infinite ones.",
    "3-shortcut networks are left out: at zero their Hessian is the zero matrix.",
    DEPTH,
    QUANTILE,
    SIGNS,
    SMOKE_IMAGES,
)

ITEMS = (Item("fig4", "initial condition numbers against depth", runs, CLAIMS, figures, raw_tables, _DEVIATIONS),)
