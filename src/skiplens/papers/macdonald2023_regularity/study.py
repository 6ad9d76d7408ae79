"""MacDonald et al. 2023, On skip connections and normalisation layers in deep optimisation.

Every file of a figure or theorem has its `ITEM`, figures 3 to 6 and the tables share one.

Measured at the laptop preset without the items on images (seed 0, one CPU core, torch 2.13): 24 claims reproduced, 12
corrected, 3 differ, 1 undecided. Skips raise the singular values of single blocks, as the paper says; they do not raise
those of the derivative in the parameters, and after ten iterations the network without skips is ahead (both differ).
Corrected are theorem 5.1, which a network of three weights refutes, four steps of its proof, lemma B.5, theorem 4.5's
hypothesis on nonlinearities, its remark on batch norm and equation 33, and the average pool of section 6.2.
"""

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
