"""The paper, and where we do something else than it says."""

from skiplens.studies.study import PaperCard

CARD = PaperCard(
    title="Residual Tangent Kernels",
    authors="E. Littwin and L. Wolf",
    year=2020,
    link="arXiv:2001.10460",
    question="What kernel is a residual or dense network at infinite width, and how far is a finite one from it?",
    errata="errata/littwin2020_tangent.md",
)

SCALE = "Inputs have ‖x‖² = d, so that the kernel is 1 where the paper means 1 (with ‖x‖ = 1 it would be 1/d)."
MATRIX_FREE = (
    "Networks are drawn without their weight matrices: the law is exactly the same, the cost is not. (The paper preset "
    "of figure 2 draws the weights.)"
)
REPLICATES = "The paper draws once; here everything is drawn again for several seeds, and intervals are over them."
