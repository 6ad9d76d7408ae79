"""Theorem 4.5: normalised layers make the loss smooth over all of parameter space."""
