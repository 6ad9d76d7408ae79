"""The views, one folder each."""
