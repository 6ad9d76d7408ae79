"""Theorem 1: the explicit network with small weights."""
