"""Littwin & Wolf 2020, Residual Tangent Kernels: figures 2, 4 and 5, theorems 1 to 6, corollaries 1 and 2.

Measured at the laptop preset (20 replicates, seed 0, two CPU cores, torch 2.13): 24 claims reproduced, 10 corrected.
Corrected are both recursions and the DenseNet's diagonal, the exponent of theorem 5, the branch scale of corollary 1,
the lower bound of theorem 4 for weights with c₄ < 3, and figure 5's vanilla network, constant only over its mean.
"""

from skiplens.papers.littwin2020_tangent import duality, kernels, variances
from skiplens.papers.littwin2020_tangent.common import CARD
from skiplens.papers.study import Study

_ORDER = ("fig2", "fig4", "fig5", "thm1", "thm2", "thm3", "thm4", "thm5", "thm6", "cor1", "cor2")
_ITEMS = (*kernels.ITEMS, *duality.ITEMS, *variances.ITEMS)
STUDY = Study("littwin2020_tangent", CARD, tuple(sorted(_ITEMS, key=lambda item: _ORDER.index(item.name))))
