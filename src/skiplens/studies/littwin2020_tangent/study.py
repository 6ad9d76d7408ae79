"""Littwin & Wolf 2020, Residual Tangent Kernels: figures 2, 4 and 5, theorems 1 to 6, corollaries 1 and 2.

Measured at the laptop preset (20 replicates, seed 0, two CPU cores, torch 2.13): 24 claims reproduced, 10 corrected.
Corrected are both recursions and the DenseNet's diagonal, the exponent of theorem 5, the branch scale of corollary 1,
the lower bound of theorem 4 for weights with c₄ < 3, and figure 5's vanilla network, constant only over its mean.
"""

from skiplens.studies.littwin2020_tangent import runs
from skiplens.studies.littwin2020_tangent.card import CARD, MATRIX_FREE, REPLICATES, SCALE
from skiplens.studies.littwin2020_tangent.claims import duality as duality_claims
from skiplens.studies.littwin2020_tangent.claims import kernels as kernel_claims
from skiplens.studies.littwin2020_tangent.claims import variances as variance_claims
from skiplens.studies.littwin2020_tangent.figures import duality as duality_figures
from skiplens.studies.littwin2020_tangent.figures import kernels as kernel_figures
from skiplens.studies.littwin2020_tangent.figures import variances as variance_figures
from skiplens.studies.littwin2020_tangent.tables import tables
from skiplens.studies.study import Item, Study

_COMMON = (SCALE, REPLICATES)
_DRAWN = (*_COMMON, MATRIX_FREE)
_FIG2 = (*_DRAWN, "The paper gives no depth and no scale for figure 2: here L = 5 and α = 0.5.")
_FIG4 = (*_DRAWN, "The paper gives no width and no depths for figure 4: here n = 50.")
_FIG5 = (*_DRAWN, "The paper gives no depths for figure 5: here L = 5 to 80.")
_SMALL = (*_COMMON, "The theorem gives no example: here L = 4, n = 16, α = 0.5.")

STUDY = Study(
    "littwin2020_tangent",
    CARD,
    (
        Item(
            "fig2",
            "sampled against limiting kernels",
            runs.fig2,
            kernel_claims.FIG2,
            kernel_figures.fig2,
            tables,
            _FIG2,
        ),
        Item(
            "fig4",
            "moments of Jacobians and of reduced networks",
            runs.fig4,
            duality_claims.FIG4,
            duality_figures.fig4,
            tables,
            _FIG4,
        ),
        Item(
            "fig5",
            "variance against depth for three architectures",
            runs.fig5,
            variance_claims.FIG5,
            variance_figures.fig5,
            tables,
            _FIG5,
        ),
        Item("thm1", "the ResNet kernel", runs.thm1, kernel_claims.THM1, kernel_figures.thm1, tables, _DRAWN),
        Item("thm2", "the DenseNet kernel", runs.thm2, kernel_claims.THM2, kernel_figures.thm2, tables, _DRAWN),
        Item(
            "thm3",
            "duality of paths and reduced networks",
            runs.thm3,
            duality_claims.THM3,
            duality_figures.thm3,
            tables,
            _SMALL,
        ),
        Item(
            "thm4",
            "moments of Jacobians from reduced networks",
            runs.thm4,
            duality_claims.THM4,
            duality_figures.thm4,
            tables,
            _SMALL,
        ),
        Item(
            "thm5",
            "variance of a ResNet's kernel",
            runs.thm5,
            variance_claims.THM5,
            variance_figures.thm5,
            tables,
            _DRAWN,
        ),
        Item(
            "thm6",
            "variance of a DenseNet's kernel",
            runs.thm6,
            variance_claims.THM6,
            variance_figures.thm6,
            tables,
            _DRAWN,
        ),
        Item(
            "cor1",
            "a branch scale for any depth",
            runs.cor1,
            variance_claims.COR1,
            variance_figures.cor1,
            tables,
            _DRAWN,
        ),
        Item(
            "cor2", "a DenseNet as wide as deep", runs.cor2, variance_claims.COR2, variance_figures.cor2, tables, _DRAWN
        ),
    ),
)
