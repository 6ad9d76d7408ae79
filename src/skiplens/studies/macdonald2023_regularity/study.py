"""MacDonald et al. 2023, On skip connections and normalisation layers in deep optimisation.

Every part of the study is a folder whose `items.py` has `ITEMS`.
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
