"""The paper, and where all of its items do something else than it says."""

from skiplens.studies.study import PaperCard

CARD = PaperCard(
    title="Demystifying ResNet",
    authors="S. Li, J. Jiao, Y. Han and T. Weissman",
    year=2016,
    link="arXiv:1611.01186",
    question="Why do shortcuts over two layers make deep networks easy to optimise?",
    errata="errata/li2016_shortcuts.md",
)

DEPTH = "Depth is the number of weight matrices; where the paper counts layers of neurons it is one more."
QUANTILE = (
    "The 10th percentile of the |eigenvalues| is the one of nearest rank: the paper gives no rule, and at zero weights "
    "the percentile sits on a jump."
)
SIGNS = (
    "Principal components have the sign that makes their entry of largest magnitude positive; the paper gives no rule, "
    "and the shortcut ties component i to class i."
)
SMOKE_IMAGES = (
    "The smoke preset takes the 2,000 embedded MNIST digits instead of the 60,000, so it decides few claims about data."
)
