"""Make it train: a search over changes with the forecast as its judge, and a race as the proof."""

from skiplens.improvement.design import Design as Design
from skiplens.improvement.design import design as design
from skiplens.improvement.improve import Improved as Improved
from skiplens.improvement.improve import improve as improve
