"""Figures 5 and 6: the Hessian along training."""
