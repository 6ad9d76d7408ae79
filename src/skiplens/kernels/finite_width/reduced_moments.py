"""Exact second and fourth moments of reduced networks, of the Jacobians of single matrices and of activations.

A reduced network f_(k) has no connection that bypasses the weights k (Littwin & Wolf 2020, definition 1). Its moments
are those of the paths through k (theorem 3), and with Gaussian weights those of the Jacobian: E‖J^k‖² = E f_(k)² and
E‖J^k‖⁴ = E f_(k)⁴/3. For a DenseNet k is a whole layer W^l, or one matrix W^{l,h} of it that reads q^h alone.
"""

import dataclasses
import math
from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from typing import NamedTuple

from skiplens.base.errors import refuse_if
from skiplens.kernels.finite_width import networks
from skiplens.kernels.finite_width.moments import kernel_moments, log_growth, mean_over_growth
from skiplens.kernels.finite_width.networks import DenseNet, Network, Number, ResNet, Vanilla, exact_gain

_AS_GOOD_AS_INFINITE = 10**18  # 1/n is below the rounding of float64, and the recursion cancels nothing


class Factor(NamedTuple):
    """A factor (1 + excess)^times of a ratio of moments."""

    excess: Fraction
    times: int = 1


@dataclass(frozen=True)
class ReducedMoments:
    """Moments of a reduced network's output f_(k) and of the Jacobian J^k = ∂f/∂W^k, Gaussian weights, ‖x‖² = d."""

    second: Number  # E f_(k)² = E‖J^k‖²
    fourth: Number  # E f_(k)⁴
    jacobian_fourth: Number  # E‖J^k‖⁴
    jacobian_relative_variance: Number  # variance of ‖J^k‖² over its squared mean


def reduced_moments(network: Network, layer: int = 1, source: int | None = None, exact: bool = False) -> ReducedMoments:
    """Moments of the network reduced to what passes through `layer`.

    Args:
        network: Architecture, depth and width. In a ResNet all matrices of all blocks share the same moments.
        layer: Block or layer, from 1.
        source: Of a DenseNet: the one h whose matrix W^{layer,h} is meant; the whole layer if not given.
        exact: Return `Fraction`s.
    """
    networks.require_layer(network, layer, source)
    share, growth = _share(network, layer, source), Factor(exact_gain(network), network.depth - 1)
    factors = list(_factors(network, layer, source))
    if exact:
        second, ratio = share * _product([growth]), _product(factors)
        return ReducedMoments(second, 3 * second**2 * ratio, second**2 * ratio, ratio - 1)
    log_ratio, log_second = _log_product(factors), _log_product([growth])
    mean = float(share) * networks.exp_or_infinity(log_second)
    fourth = float(share) ** 2 * networks.exp_or_infinity(log_ratio + 2 * log_second)
    relative = math.expm1(log_ratio) if log_ratio < networks.LARGEST_EXPONENT else math.inf
    return ReducedMoments(mean, 3 * fourth, fourth, relative)


def activation_fourth_moment(network: Network, layer: int, exact: bool = False) -> Number:
    """E‖y^l‖⁴/n² after `layer` blocks or layers (0: the first layer); of a DenseNet, that of q^l = √2·relu(y^l)."""
    n = network.width
    factors = list(_dense_growth(n, 1, layer)) if isinstance(network, DenseNet) else [_block_factor(network, layer)]
    factors.append(Factor(Fraction(5 if isinstance(network, DenseNet) else 2, n)))
    squared_mean = (1 + exact_gain(network)) ** (2 * layer)
    if exact:
        return squared_mean * _product(factors)
    return networks.exp_or_infinity(_log_product(factors) + 2 * layer * math.log1p(exact_gain(network)))


def fourth_moment_growth(network: ResNet) -> Fraction:
    """The factor β by which one block multiplies E‖y‖⁴."""
    a, n = exact_gain(network), network.width
    linear, gated = 1 + Fraction(2, n), 1 + Fraction(5, n)
    return 1 + 2 * a * linear + a**2 * linear * gated ** (network.branch_depth - 1)


def _log_product(factors: list[Factor]) -> float:
    """Natural logarithm of a product of factors, to the last digit also where it is near 1."""
    return math.fsum(factor.times * math.log1p(factor.excess) for factor in factors)


def _product(factors: list[Factor]) -> Fraction:
    return math.prod(((1 + factor.excess) ** factor.times for factor in factors), start=Fraction(1))


def _share(network: Network, layer: int, source: int | None) -> Fraction:
    """E‖J^k‖² where no other block adds to the norm."""
    if isinstance(network, ResNet):
        return exact_gain(network)
    if isinstance(network, Vanilla):
        return Fraction(1)
    above = 1 if layer == network.depth else layer + 1
    return Fraction(1, above if source is None else above * layer)


def _factors(network: Network, layer: int, source: int | None) -> Iterator[Factor]:
    """The factors of E‖J^k‖⁴/(E‖J^k‖²)²."""
    n, L = network.width, network.depth
    linear, gated = Factor(Fraction(2, n)), Factor(Fraction(5, n))
    yield linear
    match network:
        case ResNet():
            yield linear
            yield gated._replace(times=network.branch_depth - 1)
            yield _block_factor(network, L - 1)
        case Vanilla():
            yield _block_factor(network, L)
        case DenseNet():
            yield from _dense_growth(n, 1, layer if source is None else source)
            yield from [] if source is None else [gated]
            yield from [] if layer == L else [gated, *_dense_growth(n, layer + 2, L)]


def _block_factor(network: ResNet | Vanilla, blocks: int) -> Factor:
    """What `blocks` blocks do to E‖y‖⁴/(E‖y‖²)²."""
    if isinstance(network, Vanilla):
        return Factor(Fraction(5, network.width), blocks)
    return Factor(fourth_moment_growth(network) / (1 + exact_gain(network)) ** 2 - 1, blocks)


def _dense_growth(width: int, first: int, last: int) -> Iterator[Factor]:
    return (Factor(Fraction(5, width * layer**2)) for layer in range(first, last + 1))


def scaled_variance_limit(network: Network, trained: str = "branches") -> float:
    """The limit of n·V/(E𝒢)² for n → ∞ at the network's depth (its own width does not matter)."""
    wide = dataclasses.replace(network, width=_AS_GOOD_AS_INFINITE)
    return _AS_GOOD_AS_INFINITE * float(kernel_moments(wide, trained).relative_variance)


def resnet_scaled_variance(growth: Number) -> float:
    """The limit 4 + 8c/3 of n·V/(E𝒢)² for a ResNet with α^m = c/L, L and n → ∞, the same for every branch depth.

    First and last layer (frozen, but random) give 2 each, the blocks 8c/3.
    """
    refuse_if(growth < 0, f"growth must not be negative, got {growth}; it is c in branch_scale^m = c/depth.")
    return 4 + 8 * growth / 3


class VarianceBound(NamedTuple):
    """An upper bound on the variance of 𝒢(x, x) at ‖x‖² = d, with Gaussian weights and frozen first and last layer."""

    variance: float
    relative_variance: float


def minkowski_bound(network: Network) -> VarianceBound:
    """The bound V ≤ (Σ_k √V(‖J^k‖²))², with the exact variance of every layer's Jacobian.

    This is what equation (39) of Littwin & Wolf 2020 gives; theorems 5 and 6 loosen it and lose it on the way
    (see `errata`). It is 1 to 2.4 times the exact variance for ResNets and about 1.4 times for DenseNets.
    """
    if not isinstance(network, DenseNet):
        # all Jacobians have the same moments, so the relative variance of one bounds that of their sum
        relative = float(reduced_moments(network).jacobian_relative_variance)
        mean = float(mean_over_growth(network, "branches")) * networks.exp_or_infinity(log_growth(network))
        return VarianceBound(relative * mean**2, relative)
    layers = [reduced_moments(network, layer) for layer in range(1, network.depth + 1)]
    mean = math.fsum(layer.second for layer in layers)
    deviation = math.fsum(layer.second * math.sqrt(layer.jacobian_relative_variance) for layer in layers)
    return VarianceBound(deviation**2, (deviation / mean) ** 2)
