"""The figures of every item."""
