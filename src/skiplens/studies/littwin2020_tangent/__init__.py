"""Littwin & Wolf 2020, Residual Tangent Kernels."""
