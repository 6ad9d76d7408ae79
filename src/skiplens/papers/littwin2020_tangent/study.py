"""Littwin & Wolf 2020, Residual Tangent Kernels: figures 2, 4 and 5, theorems 1 to 6, corollaries 1 and 2.

Measured at the laptop preset (20 replicates, seed 0, two CPU cores, torch 2.13): 24 claims reproduced, 10 corrected.
Corrected are both recursions and the DenseNet's diagonal, the exponent of theorem 5, the branch scale of corollary 1,
the lower bound of theorem 4 for weights with c₄ < 3, and figure 5's vanilla network, constant only over its mean.
"""

from collections.abc import Sequence

from torch import Tensor

from skiplens.papers.littwin2020_tangent import duality, kernels, runs, variances
from skiplens.papers.statistics import entries, raw_tables
from skiplens.papers.study import Item, PaperCard, Study, Table
from skiplens.readings.reading import Measurement

SCALE = "Inputs have ‖x‖² = d, so that the kernel is 1 where the paper means 1 (with ‖x‖ = 1 it would be 1/d)."

REPLICATES = "The paper draws once; here everything is drawn again for several seeds, and intervals are over them."

_COMMON = (SCALE, REPLICATES)

MATRIX_FREE = (
    "Networks are drawn without their weight matrices: the law is exactly the same, the cost is not. (The paper preset "
    "of figure 2 draws the weights.)"
)

_DRAWN = (*_COMMON, MATRIX_FREE)

_FIG2 = (*_DRAWN, "The paper gives no depth and no scale for figure 2: here L = 5 and α = 0.5.")

_FIG4 = (*_DRAWN, "The paper gives no width and no depths for figure 4: here n = 50.")

_FIG5 = (*_DRAWN, "The paper gives no depths for figure 5: here L = 5 to 80.")

_SMALL = (*_COMMON, "The theorem gives no example: here L = 4, n = 16, α = 0.5.")

CARD = PaperCard(
    title="Residual Tangent Kernels",
    authors="E. Littwin and L. Wolf",
    year=2020,
    link="arXiv:2001.10460",
    question="What kernel is a residual or dense network at infinite width, and how far is a finite one from it?",
    errata="errata/littwin2020_tangent.md",
)


def tables(readings: Sequence[Measurement]) -> tuple[Table, ...]:
    """One table for each measure that the item uses."""
    return raw_tables(readings, _summaries)


def _summaries(reading: Measurement) -> list[dict[str, float]]:
    """Moments over the networks of the run; moments that were measured as such are passed on."""
    match reading.name.rpartition(":")[2]:
        case "bundle":
            return _moments({"kernel": reading["kernel"]})
        case "diagonal":
            return _moments({"kernel": reading["kernel"][:, None]})
        case "layer":
            return _moments({name: reading[name][:, None] for name in ("jacobian_squared", "output_squared")})
        case _:
            return entries(reading)


def _moments(arrays: dict[str, Tensor]) -> list[dict[str, float]]:
    """Mean, variance and second moment of every column."""
    columns = {}
    for name, array in arrays.items():
        columns[f"{name}_mean"] = array.mean(0).tolist()
        columns[f"{name}_variance"] = array.var(0).tolist()
        columns[f"{name}_second_moment"] = array.square().mean(0).tolist()
    return [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]


STUDY = Study(
    "littwin2020_tangent",
    CARD,
    (
        Item(
            "fig2",
            "sampled against limiting kernels",
            runs.fig2_runs,
            kernels.FIG2,
            kernels.draw_fig2,
            tables,
            _FIG2,
        ),
        Item(
            "fig4",
            "moments of Jacobians and of reduced networks",
            runs.fig4_runs,
            duality.FIG4,
            duality.draw_fig4,
            tables,
            _FIG4,
        ),
        Item(
            "fig5",
            "variance against depth for three architectures",
            runs.fig5_runs,
            variances.FIG5,
            variances.draw_fig5,
            tables,
            _FIG5,
        ),
        Item("thm1", "the ResNet kernel", runs.thm1_runs, kernels.THM1, kernels.draw_thm1, tables, _DRAWN),
        Item("thm2", "the DenseNet kernel", runs.thm2_runs, kernels.THM2, kernels.draw_thm2, tables, _DRAWN),
        Item(
            "thm3",
            "duality of paths and reduced networks",
            runs.thm3_runs,
            duality.THM3,
            duality.draw_thm3,
            tables,
            _SMALL,
        ),
        Item(
            "thm4",
            "moments of Jacobians from reduced networks",
            runs.thm4_runs,
            duality.THM4,
            duality.draw_thm4,
            tables,
            _SMALL,
        ),
        Item(
            "thm5",
            "variance of a ResNet's kernel",
            runs.thm5_runs,
            variances.THM5,
            variances.draw_thm5,
            tables,
            _DRAWN,
        ),
        Item(
            "thm6",
            "variance of a DenseNet's kernel",
            runs.thm6_runs,
            variances.THM6,
            variances.draw_thm6,
            tables,
            _DRAWN,
        ),
        Item(
            "cor1",
            "a branch scale for any depth",
            runs.cor1_runs,
            variances.COR1,
            variances.draw_cor1,
            tables,
            _DRAWN,
        ),
        Item("cor2", "a DenseNet as wide as deep", runs.cor2_runs, variances.COR2, variances.draw_cor2, tables, _DRAWN),
    ),
)
