"""Littwin & Wolf 2020, Residual Tangent Kernels: figures 2, 4 and 5, theorems 1 to 6, corollaries 1 and 2."""

from skiplens.papers.littwin2020_tangent import duality, kernels, variances
from skiplens.papers.littwin2020_tangent.common import CARD
from skiplens.papers.study import Study

_ORDER = ("fig2", "fig4", "fig5", "thm1", "thm2", "thm3", "thm4", "thm5", "thm6", "cor1", "cor2")
_ITEMS = (*kernels.ITEMS, *duality.ITEMS, *variances.ITEMS)
STUDY = Study("littwin2020_tangent", CARD, tuple(sorted(_ITEMS, key=lambda item: _ORDER.index(item.name))))
