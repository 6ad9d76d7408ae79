"""Theorem 2: the Hessian at zero weights."""
