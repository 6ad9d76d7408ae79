"""How often 95 % intervals cover the truth, and how often they must in so many repeats."""

import math

from scipy.special import stdtrit


def least_covered(repeats: int, confidence: float = 0.95, standard_errors: float = 3.0) -> float:
    """The count of covered cases that chance goes below once in about 700 tries."""
    return repeats * confidence - standard_errors * math.sqrt(repeats * confidence * (1 - confidence))


def spread_factor(samples: int, confidence: float = 0.95) -> float:
    """How many standard errors of a mean of so few samples make a 95 % interval (Student)."""
    return float(stdtrit(samples - 1, (1 + confidence) / 2))
