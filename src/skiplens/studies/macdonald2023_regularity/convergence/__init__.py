"""Theorem 5.1: convergence from any start; what is printed, what really holds, and a network for which it is true."""
