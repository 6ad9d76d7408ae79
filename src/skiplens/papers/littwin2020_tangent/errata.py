"""Statements of Littwin & Wolf 2020 as printed that do not hold, each with what is wrong. Nothing else uses them.

The correct ones are in `moments`, `bounds` and `asymptotics`. Variances are at ‖x‖² = d.
"""

import math
from typing import NamedTuple

from skiplens.kernels.finite_width.networks import ResNet, exact_gain
from skiplens.kernels.finite_width.reduced_moments import FourthMomentBounds, fourth_moment_growth


class ConditionalVariance(NamedTuple):
    """Var(‖y^L‖² | y⁰)/‖y⁰‖⁴ of a reduced ResNet: the exact value between the bounds printed in equation (166)."""

    exact: float
    printed_lower: float
    printed_upper: float


def theorem4_bounds(fourth: float, weight_fourth_moment: float) -> FourthMomentBounds:
    """The printed E f⁴/c₄ ≤ E‖J‖⁴ ≤ E f⁴.

    The lower bound is false for c₄ < 3: uniform and Rademacher weights violate it. The upper one is loose by a
    factor 3 for Gaussian weights. `bounds.jacobian_fourth_bounds` is right.
    """
    return FourthMomentBounds(fourth / weight_fourth_moment, fourth)


def log_theorem5_main_text(network: ResNet) -> float:
    """Logarithm of the variance printed in equation (40), (mL)²a²(ρ²-1)·exp(L·a·ρ), ρ = (1 + 5/n)^{m/2}.

    The exponent lacks a factor 2: the true variance is larger by any factor as L·a grows.
    """
    a, rho = float(exact_gain(network)), _rho(network)
    return _log_theorem5_factor(network) + network.depth * a * rho


def log_theorem5_appendix(network: ResNet) -> float:
    """Logarithm of the variance printed in equation (168), (mL)²a²(ρ²-1)·exp(2(L-1)·a·ρ).

    The right exponent, but no bound uniform in the width: at fixed L·a/n the true variance exceeds it by any factor.
    """
    a, rho = float(exact_gain(network)), _rho(network)
    return _log_theorem5_factor(network) + 2 * (network.depth - 1) * a * rho


def fourth_moment_growth_as_printed(network: ResNet) -> float:
    """The β of equation (159), with (1 + 5/n)^m for (1 + 2/n)(1 + 5/n)^{m-1}: an upper bound printed as an equality."""
    a, n = float(exact_gain(network)), network.width
    return 1 + 2 * a * (1 + 2 / n) + a**2 * (1 + 5 / n) ** network.branch_depth


def conditional_variance(network: ResNet) -> ConditionalVariance:
    """The exact Var(‖y^L‖² | y⁰)/‖y⁰‖⁴ of a reduced network beside both bounds of equation (166); both fail."""
    a, n, rho, others = float(exact_gain(network)), network.width, _rho(network), network.depth - 1
    branch = (1 + 2 / n) * (1 + 5 / n) ** (network.branch_depth - 1)
    exact = a**2 * (branch * float(fourth_moment_growth(network)) ** others - (1 + a) ** (2 * others))
    factor = a**2 * (rho**2 - 1)
    return ConditionalVariance(exact, factor * (1 + a) ** (2 * others), factor * (1 + a * rho) ** (2 * others))


def densenet_mean_as_printed(depth: int) -> float:
    """The diagonal of a DenseNet's kernel printed in equation (29), Σ 1/(l+1); it is Σ 1/l."""
    return math.fsum(1 / (layer + 1) for layer in range(1, depth + 1))


def densenet_layer_variance_as_printed(depth: int, width: int) -> float:
    """The bound exp(Σ 5/(n·l²)) - 1 on a DenseNet layer's relative variance given q⁰, printed in equation (186).

    The factor 1 + 5/n occurs twice below it, so it is no bound; exp((5/n)(1 + π²/6)) - 1 is one.
    """
    return math.expm1(math.fsum(5 / (width * layer**2) for layer in range(1, depth + 1)))


def densenet_layer_variance(depth: int, width: int, layer: int) -> float:
    """The exact relative variance that equation (186) wants to bound: Π_{l≠k+1}(1 + 5/(n·l²))·(1 + 5/n) - 1."""
    others = (math.log1p(5 / (width * other**2)) for other in range(1, depth + 1) if other != layer + 1)
    return math.expm1(math.fsum(others) + math.log1p(5 / width))


def densenet_layer_variance_bound(width: int) -> float:
    """A bound on that relative variance at every depth and layer: exp((5/n)(1 + π²/6)) - 1."""
    return math.expm1(5 / width * (1 + math.pi**2 / 6))


def theorem6_as_printed(depth: int, width: int) -> float:
    """The order printed in equation (42), (e^{5/n} - 1)·log(L)²: 0 at depth 1; the variance is ≈ 9.9·H_L²/n."""
    return math.expm1(5 / width) * math.log(depth) ** 2


def _rho(network: ResNet) -> float:
    return (1 + 5 / network.width) ** (network.branch_depth / 2)


def _log_theorem5_factor(network: ResNet) -> float:
    rho_squared_minus_1 = math.expm1(network.branch_depth * math.log1p(5 / network.width))
    matrices_times_gain = network.branch_depth * network.depth * float(exact_gain(network))
    return 2 * math.log(matrices_times_gain) + math.log(rho_squared_minus_1)
