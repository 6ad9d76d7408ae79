"""The item of figure 2."""

from skiplens.studies.macdonald2023_regularity.digits.claims import CLAIMS
from skiplens.studies.macdonald2023_regularity.digits.figures import fig2
from skiplens.studies.macdonald2023_regularity.digits.runs import fig2 as runs
from skiplens.studies.macdonald2023_regularity.digits.tables import tables
from skiplens.studies.study import Item

ITEMS = (
    Item(
        "fig2",
        "MNIST: Jacobian singular values and loss without skips, with skips, with an average pool",
        runs,
        CLAIMS,
        fig2,
        tables,
        (
            "Networks have the five convolutions of the authors' public script (the paper says six).",
            "Histograms are of raw pixels as in that script (the paper's axis fits only these), losses and DF of "
            "standardised pixels as in the text.",
            "Every trial has images and weights of its own; smoke and laptop draw the images from the first 2,000 of "
            "MNIST, which come with the package. Smoke has 8 images, not 32.",
            "Laptop looks at iterations 0, 5 and 9 of the first ten, in 5 trials: too few to decide that claim.",
            "Single blocks are looked at with the statistics of batch norm frozen, and on 4 images of the batch.",
        ),
    ),
)
