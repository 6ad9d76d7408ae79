"""What theorem 1 promises, as corrected: norms, lengths of ways, numbers of units, growth of rounding."""

import math


def norm_bound(units: int, samples: int, separation: float) -> float:
    """√((8π m / (R rho)) ((m − 1)/2 + 1/rho)), which the printed units' norms stay below for R ≫ m (eq. 6, corrected).

    The bracket belongs under the root and R is the number of units; the paper prints it outside.
    """
    rho = separation
    return math.sqrt(8 * math.pi * samples / (units * rho) * ((samples - 1) / 2 + 1 / rho))


def length_bound(samples: int, separation: float) -> float:
    """The longest way that lemma 2 allows one point: π (1 + rho (m − 1)/2)."""
    return math.pi * (1 + separation * (samples - 1) / 2)


def units_bound(samples: int, separation: float, step: float) -> int:
    """The number of units that is always enough for steps of this length (eq. 19)."""
    return samples * math.ceil(length_bound(samples, separation) / step)


def printed_amplification(separation: float, length: float) -> float:
    """How much the printed units magnify an error along the moving point: about (8/rho²) sinh(κ·length)/κ.

    κ = √(8/rho² − 1): exponential in length over separation, so that float64 fails near rho = 0.1.
    """
    kappa = math.sqrt(8 / separation**2 - 1)
    return 8 / separation**2 / kappa * math.sinh(kappa * length)
