"""Li, Jiao, Han & Weissman 2016, Demystifying ResNet: figures 2 to 9, theorems 1 and 2.

Measured at the laptop preset (seed 0, two CPU cores, torch 2.13) for figures 3 to 6 and the theorems: 28 claims
reproduced, 8 corrected. Corrected are the step length and the separation of theorem 1, the local minimum at zero, the
exploding condition number of 1-shortcut networks (it grows linearly), biases and ReLU at zero, and figure 5's "always
smaller" and "the same value" near the end of training.
"""

from skiplens.papers.li2016_shortcuts import fig2_fig9, fig3, fig4, fig5_fig6, fig7_fig8, thm1, thm2
from skiplens.papers.li2016_shortcuts.common import CARD
from skiplens.papers.study import Item, Study

_PARTS: tuple[tuple[Item, ...], ...] = (
    fig2_fig9.ITEMS,
    fig5_fig6.ITEMS,
    fig4.ITEMS,
    fig7_fig8.ITEMS,
    fig3.ITEMS,
    thm1.ITEMS,
    thm2.ITEMS,
)

_ORDER = ("fig2", "fig3", "fig4", "fig5", "fig6", "fig7", "fig8", "fig9", "thm1", "thm2")

STUDY = Study(
    "li2016_shortcuts",
    CARD,
    tuple(sorted((item for part in _PARTS for item in part), key=lambda item: _ORDER.index(item.name))),
)
