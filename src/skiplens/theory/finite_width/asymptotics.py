"""Where the relative variance of the kernel's diagonal goes for deep and wide networks, sharp to the constant."""

import dataclasses
import math

from skiplens.core.errors import InvalidInputError
from skiplens.theory.finite_width.moments import kernel_moments
from skiplens.theory.finite_width.networks import Network, Number, ResNet, exact_gain
from skiplens.theory.finite_width.reduced_moments import fourth_moment_growth

_AS_GOOD_AS_INFINITE = 10**18  # 1/n is below the rounding of float64, and the recursion cancels nothing


def scaled_variance_limit(network: Network, trained: str = "branches") -> float:
    """The limit of n·V/(E𝒢)² for n → ∞ at the network's depth (its own width does not matter)."""
    wide = dataclasses.replace(network, width=_AS_GOOD_AS_INFINITE)
    return _AS_GOOD_AS_INFINITE * float(kernel_moments(wide, trained).relative_variance)


def resnet_scaled_variance(growth: Number) -> float:
    """The limit 4 + 8c/3 of n·V/(E𝒢)² for a ResNet with α^m = c/L, L and n → ∞, the same for every branch depth.

    First and last layer (frozen, but random) give 2 each, the blocks 8c/3.
    """
    if growth < 0:
        raise InvalidInputError(f"growth must not be negative, got {growth}; it is c in branch_scale^m = c/depth.")
    return 4 + 8 * growth / 3


def resnet_variance_rate(network: ResNet) -> float:
    """The growth of log(1 + V/(E𝒢)²) per block of a deep ResNet: log(β/(1+a)²), β the growth of E‖y‖⁴."""
    return math.log1p(fourth_moment_growth(network) / (1 + exact_gain(network)) ** 2 - 1)


def resnet_variance_rate_leading(network: ResNet) -> float:
    """The same rate to first order in 1/n: (4a + (5m-3)a²)/(1+a)²/n."""
    a, m = float(exact_gain(network)), network.branch_depth
    return (4 * a + (5 * m - 3) * a**2) / (1 + a) ** 2 / network.width


def vanilla_relative_variance(depth_over_width: Number) -> float:
    """The limit of V/(E𝒢)² of a vanilla network for L, n → ∞ with L/n = λ fixed.

    e^{5λ}·[1/3 + (6λ - 1 + e^{-6λ})/(27λ²)] - 1.
    """
    if depth_over_width <= 0:
        raise InvalidInputError(f"depth_over_width must be positive, got {depth_over_width}.")
    x = 6 * float(depth_over_width)
    return math.expm1(5 * x / 6 + math.log1p(4 * _third_remainder(x) / 3))


def _third_remainder(x: float) -> float:
    """(e^{-x} - 1 + x - x²/2)/x², as a series where the differences would cancel."""
    if x > 0.5:
        return (math.expm1(-x) + x) / x**2 - 0.5
    return math.fsum((-x) ** k / math.factorial(k + 2) for k in range(1, 16))
