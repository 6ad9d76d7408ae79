"""See what skip connections do to your network."""

__version__ = "0.1.0"
