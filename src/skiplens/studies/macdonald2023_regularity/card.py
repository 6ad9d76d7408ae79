"""The paper."""

from skiplens.studies.study import PaperCard

CARD = PaperCard(
    title="On skip connections and normalisation layers in deep optimisation",
    authors="L. E. MacDonald, J. Valmadre, H. Saratchandran and S. Lucey",
    year=2023,
    link="arXiv:2210.05371",
    question="Do skips and normalisation keep the layers' Jacobians away from singular, and is gradient descent then "
    "guaranteed to arrive?",
    errata="errata/macdonald2023_regularity.md",
)
