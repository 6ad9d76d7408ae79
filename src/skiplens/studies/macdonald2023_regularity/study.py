"""MacDonald et al. 2023, On skip connections and normalisation layers in deep optimisation.

Every part of the study is a folder whose `items.py` has `ITEMS`.

Measured at the laptop preset without the items on images (seed 0, one CPU core, torch 2.13): 24 claims reproduced, 12
corrected, 3 differ, 1 undecided. Skips raise the singular values of single blocks, as the paper says; they do not raise
those of the derivative in the parameters, and after ten iterations the network without skips is ahead (both differ).
Corrected are theorem 5.1, which a network of three weights refutes, four steps of its proof, lemma B.5, theorem 4.5's
hypothesis on nonlinearities, its remark on batch norm and equation 33, and the average pool of section 6.2.
"""

from skiplens.studies.macdonald2023_regularity.card import CARD
from skiplens.studies.macdonald2023_regularity.convergence.items import ITEMS as CONVERGENCE
from skiplens.studies.macdonald2023_regularity.descent.items import ITEMS as DESCENT
from skiplens.studies.macdonald2023_regularity.digits.items import ITEMS as DIGITS
from skiplens.studies.macdonald2023_regularity.images.items import ITEMS as IMAGES
from skiplens.studies.macdonald2023_regularity.linear.items import ITEMS as LINEAR
from skiplens.studies.macdonald2023_regularity.regularity.items import ITEMS as REGULARITY
from skiplens.studies.macdonald2023_regularity.smoothness.items import ITEMS as SMOOTHNESS
from skiplens.studies.study import Item, Study

_PARTS: tuple[tuple[Item, ...], ...] = (LINEAR, DIGITS, IMAGES, DESCENT, SMOOTHNESS, REGULARITY, CONVERGENCE)

STUDY = Study("macdonald2023_regularity", CARD, tuple(item for part in _PARTS for item in part))
