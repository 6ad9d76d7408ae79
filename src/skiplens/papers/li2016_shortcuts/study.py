"""Li, Jiao, Han & Weissman 2016, Demystifying ResNet: figures 2 to 9, theorems 1 and 2."""

from skiplens.papers.li2016_shortcuts import fig2_fig9, fig3_fig4, fig5_fig6, fig7_fig8, thm1, thm2
from skiplens.papers.study import PaperCard, Study

CARD = PaperCard(
    title="Demystifying ResNet",
    authors="S. Li, J. Jiao, Y. Han and T. Weissman",
    year=2016,
    link="arXiv:1611.01186",
    question="Why do shortcuts over two layers make deep networks easy to optimise?",
    errata="errata/li2016_shortcuts.md",
)

_FILES = (fig2_fig9, fig3_fig4, fig5_fig6, fig7_fig8, thm1, thm2)
_ITEMS = sorted((item for file in _FILES for item in file.ITEMS), key=lambda item: item.name)

STUDY = Study("li2016_shortcuts", CARD, tuple(_ITEMS))
