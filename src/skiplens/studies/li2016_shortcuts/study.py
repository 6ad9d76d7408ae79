"""Li, Jiao, Han & Weissman 2016, Demystifying ResNet: figures 2 to 9, theorems 1 and 2.

Measured at the laptop preset (seed 0, two CPU cores, torch 2.13) for figures 3 to 6 and the theorems: 28 claims
reproduced, 8 corrected. Corrected are the step length and the separation of theorem 1, the local minimum at zero, the
exploding condition number of 1-shortcut networks (it grows linearly), biases and ReLU at zero, and figure 5's "always
smaller" and "the same value" near the end of training.
"""

from skiplens.studies.li2016_shortcuts.card import CARD
from skiplens.studies.li2016_shortcuts.dynamics import items as dynamics
from skiplens.studies.li2016_shortcuts.images import items as images
from skiplens.studies.li2016_shortcuts.initial_point import items as initial_point
from skiplens.studies.li2016_shortcuts.learning_rates import items as learning_rates
from skiplens.studies.li2016_shortcuts.norms import items as norms
from skiplens.studies.li2016_shortcuts.small_weights import items as small_weights
from skiplens.studies.li2016_shortcuts.zero_point import items as zero_point
from skiplens.studies.study import Item, Study

_PARTS: tuple[tuple[Item, ...], ...] = (
    images.ITEMS,
    dynamics.ITEMS,
    initial_point.ITEMS,
    learning_rates.ITEMS,
    norms.ITEMS,
    small_weights.ITEMS,
    zero_point.ITEMS,
)
_ORDER = ("fig2", "fig3", "fig4", "fig5", "fig6", "fig7", "fig8", "fig9", "thm1", "thm2")

STUDY = Study(
    "li2016_shortcuts",
    CARD,
    tuple(sorted((item for part in _PARTS for item in part), key=lambda item: _ORDER.index(item.name))),
)
