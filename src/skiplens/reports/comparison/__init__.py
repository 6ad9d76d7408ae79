"""Several models side by side, with differences tested against what a new draw of the weights changes."""

from skiplens.reports.comparison.compare import compare as compare
from skiplens.reports.comparison.comparison import Comparison as Comparison
