"""See what skip connections do to your network."""

from skiplens.core.version import VERSION

__version__ = VERSION
