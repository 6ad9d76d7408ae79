"""Theorem 4.7: skips around contracting branches keep the parameter derivative regular."""
