"""See what skip connections do to your network."""

from skiplens.core.version import VERSION
from skiplens.reports import Report as Report
from skiplens.reports import inspect as inspect
from skiplens.residual import ResidualBlock as ResidualBlock
from skiplens.residual import find_residual_blocks as find_residual_blocks

__version__ = VERSION
