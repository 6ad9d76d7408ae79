"""Bounds that hold, beside the exact moments: of the kernel's variance, and of Jacobians with any weight law."""

import math
from typing import NamedTuple

from skiplens.theory.finite_width.moments import log_growth, mean_over_growth
from skiplens.theory.finite_width.networks import DenseNet, Network, ResNet, Vanilla, exp_or_infinity
from skiplens.theory.finite_width.reduced_moments import reduced_moments


class VarianceBound(NamedTuple):
    """An upper bound on the variance of 𝒢(x, x) at ‖x‖² = d, with Gaussian weights and frozen first and last layer."""

    variance: float
    relative_variance: float


class FourthMomentBounds(NamedTuple):
    """Bounds on E‖J^k‖⁴."""

    lower: float
    upper: float


def minkowski_bound(network: Network) -> VarianceBound:
    """The bound V ≤ (Σ_k √V(‖J^k‖²))², with the exact variance of every layer's Jacobian.

    This is what equation (39) of Littwin & Wolf 2020 gives; theorems 5 and 6 loosen it and lose it on the way
    (see `errata`). It is 1 to 2.4 times the exact variance for ResNets and about 1.4 times for DenseNets.
    """
    if not isinstance(network, DenseNet):
        return _alike(network)
    layers = [reduced_moments(network, layer) for layer in range(1, network.depth + 1)]
    mean = math.fsum(layer.second for layer in layers)
    deviation = math.fsum(layer.second * math.sqrt(layer.jacobian_relative_variance) for layer in layers)
    return VarianceBound(deviation**2, (deviation / mean) ** 2)


def jacobian_fourth_bounds(fourth: float, weight_fourth_moment: float) -> FourthMomentBounds:
    """Bounds on E‖J^k‖⁴ from E f_(k)⁴ for symmetric weights of variance 1 and the given fourth moment c₄.

    E f⁴/max(3, c₄) ≤ E‖J‖⁴ ≤ E f⁴/min(3, c₄), because E f⁴ = 3 E‖J‖⁴ + (c₄ - 3) E Σ J_ij⁴.
    """
    return FourthMomentBounds(fourth / max(3.0, weight_fourth_moment), fourth / min(3.0, weight_fourth_moment))


def _alike(network: ResNet | Vanilla) -> VarianceBound:
    """All Jacobians have the same moments, so the relative variance of one bounds that of their sum."""
    relative = float(reduced_moments(network).jacobian_relative_variance)
    mean = float(mean_over_growth(network, "branches")) * exp_or_infinity(log_growth(network))
    return VarianceBound(relative * mean**2, relative)
