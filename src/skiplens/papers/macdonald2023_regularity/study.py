"""MacDonald et al. 2023, On skip connections and normalisation layers in deep optimisation."""

from skiplens.papers.macdonald2023_regularity import fig1, fig2, fig3_to_fig6, thm2_3, thm4_5, thm4_7, thm5_1
from skiplens.papers.study import PaperCard, Study

CARD = PaperCard(
    title="On skip connections and normalisation layers in deep optimisation",
    authors="L. E. MacDonald, J. Valmadre, H. Saratchandran and S. Lucey",
    year=2023,
    link="arXiv:2210.05371",
    question="Do skips and normalisation keep the layers' Jacobians away from singular, and is gradient descent then "
    "guaranteed to arrive?",
    errata="errata/macdonald2023_regularity.md",
)

STUDY = Study(
    "macdonald2023_regularity",
    CARD,
    (fig1.ITEM, fig2.ITEM, *fig3_to_fig6.ITEMS, thm2_3.ITEM, thm4_5.ITEM, thm4_7.ITEM, thm5_1.ITEM),
)
