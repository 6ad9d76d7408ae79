"""Exact mean and variance of the tangent kernel's diagonal at any width and depth.

Littwin & Wolf 2020 bound this variance (theorems 5 and 6); here it is computed, by a linear recursion over the layers.
"""

import math
import sys
from dataclasses import dataclass
from fractions import Fraction
from typing import NamedTuple

import numpy as np

from skiplens.base.errors import InvalidInputError
from skiplens.kernels.finite_width import networks
from skiplens.kernels.finite_width.networks import DenseNet, Network, Number, ResNet, Vanilla, exact_gain, trained_ends

Rows = list[list[Fraction]]


@dataclass(frozen=True)
class KernelMoments:
    """Mean and variance of the tangent kernel 𝒢(x, x) of random networks, for ‖x‖² = d.

    Attributes:
        mean: E𝒢; infinite where it is beyond the largest float.
        relative_variance: V/(E𝒢)².
        log_mean: Natural logarithm of the mean, finite at every depth.
        log_relative_variance: Natural logarithm of the relative variance, finite at every depth.
    """

    mean: Number
    relative_variance: Number
    log_mean: float
    log_relative_variance: float

    @property
    def variance(self) -> Number:
        """V = E𝒢² - (E𝒢)²."""
        return self.relative_variance * self.mean * self.mean

    @property
    def second_moment(self) -> Number:
        """E𝒢²."""
        return (1 + self.relative_variance) * self.mean * self.mean


def kernel_moments(network: Network, trained: str = "branches", exact: bool = False) -> KernelMoments:
    """Mean and variance of the tangent kernel's diagonal.

    A ResNet or vanilla network of any depth costs a few products of 8 × 8 matrices; a DenseNet one step per layer.

    Args:
        network: Architecture, depth and width.
        trained: ``"branches"`` (first and last layer frozen), ``"branches_and_first"``, ``"branches_and_last"`` or
            ``"all"``.
        exact: Compute in rationals and return `Fraction`s; a float scale counts as the decimal it is written as.

    Examples:
        >>> kernel_moments(ResNet(depth=3, width=8, branch_scale=0.5), exact=True).variance
        Fraction(906344775, 134217728)
    """
    if isinstance(network, ResNet) and network.branch_scale == 0:
        raise InvalidInputError(
            "With branch_scale 0 the branches have no tangent kernel to speak of. Choose branch_scale > 0."
        )
    return _exact(network, trained) if exact else _floating(network, trained)


def mean_over_growth(network: Network, trained: str, exact: bool = False) -> Number:
    """E𝒢 divided by the growth of E‖y‖² over the depth: m·L·a/(1+a), H_L or L, plus 1 for a trained end layer."""
    ends = sum(trained_ends(trained))
    match network:
        case ResNet():
            a = exact_gain(network)
            inner = network.branch_depth * network.depth * a / (1 + a)
        case DenseNet() if exact:
            inner = sum((Fraction(1, layer) for layer in range(1, network.depth + 1)), start=Fraction(0))
        case DenseNet():
            return math.fsum(1 / layer for layer in range(1, network.depth + 1)) + ends
        case Vanilla():
            inner = Fraction(network.depth)
    return inner + ends if exact else float(inner + ends)


def log_growth(network: Network) -> float:
    """Natural logarithm of the growth of E‖y‖² from first to last layer: L·log(1+a) for a ResNet, else 0."""
    return network.depth * math.log1p(exact_gain(network))


def _exact(network: Network, trained: str) -> KernelMoments:
    n = Fraction(network.width)
    start = [Fraction(number) for number in first_layer(n, trained_ends(trained)[0])]
    if isinstance(network, DenseNet):
        end = _dense(MomentState(*start), n, network.depth)
    else:
        end = MomentState(*times_exact_power(_matrix(network), network.depth, start))
    mean = Fraction(mean_over_growth(network, trained, exact=True)) * (1 + exact_gain(network)) ** network.depth
    relative = Fraction(_variance(end, trained)) / (mean * mean)
    logarithms = (math.log(number.numerator) - math.log(number.denominator) for number in (mean, relative))
    return KernelMoments(mean, relative, *logarithms)


def _floating(network: Network, trained: str) -> KernelMoments:
    if isinstance(network, DenseNet):
        n = float(network.width)
        end, exponent = _dense(first_layer(n, trained_ends(trained)[0]), n, network.depth), 0
    else:
        # what one block adds to the identity after the growth of the squared mean norm is divided out
        growth = (1 + exact_gain(network)) ** 2
        rows = _matrix(network)
        excess = [[entry / growth - (i == j) for j, entry in enumerate(row)] for i, row in enumerate(rows)]
        start = list(first_layer(Fraction(network.width), trained_ends(trained)[0]))
        vector, exponent = times_power_of_identity_plus(excess, network.depth, start)
        end = MomentState(*vector)
    mean = mean_over_growth(network, trained)
    relative = float(_variance(end, trained)) / mean**2
    overflows = math.frexp(relative)[1] + exponent > sys.float_info.max_exp
    return KernelMoments(
        mean * networks.exp_or_infinity(log_growth(network)),
        math.inf if overflows else math.ldexp(relative, exponent),
        math.log(mean) + log_growth(network),
        math.log(relative) + exponent * math.log(2),
    )


class MomentState(NamedTuple):
    """Moments of Θ and y at one layer."""

    trace_variance: Number  # of tr Θ
    square_trace: Number  # mean of tr Θ²
    covariance: Number  # of tr Θ and ‖y‖²
    quadratic_form: Number  # mean of yᵀΘy
    norm_variance: Number  # of ‖y‖²
    trace_squared: Number  # (E tr Θ)²
    trace_times_norm: Number  # E tr Θ · E‖y‖²
    norm_squared: Number  # (E‖y‖²)²

    def second_moments(self) -> tuple[Number, Number, Number]:
        """E(trΘ)², E trΘ‖y‖² and E‖y‖⁴: variance plus product of means."""
        A1, _, c1, _, e, pp, pq, qq = self
        return A1 + pp, c1 + pq, e + qq

    def plus(self, *others: "MomentState") -> "MomentState":
        """Entrywise sum, from left to right."""
        return MomentState(*(sum(entries[1:], start=entries[0]) for entries in zip(self, *others, strict=True)))


def _variance(end: MomentState, trained: str) -> Number:
    inner = end.trace_variance + 2 * end.square_trace
    return inner + 2 * end.covariance + end.norm_variance if trained_ends(trained)[1] else inner


def _dense(state: MomentState, width: Number, depth: int) -> MomentState:
    state = gate(state, width)
    for layer in range(1, depth):
        state = dense_layer(state, width, layer)
    return linear(state, width * depth, width, 1)


def _matrix(network: ResNet | Vanilla) -> Rows:
    """The 8 × 8 matrix of one block, column by column the images of the unit states."""
    n = Fraction(network.width)

    def block(state: MomentState) -> MomentState:
        if isinstance(network, Vanilla):
            return gate(linear(state, n, n, 1), n)
        return residual_block(state, n, network.branch_depth, networks.as_written(network.branch_scale))

    columns = [block(MomentState(*(Fraction(i == j) for i in range(8)))) for j in range(8)]
    return [[Fraction(entry) for entry in row] for row in zip(*columns, strict=True)]


def first_layer(width: Number, first_trained: bool) -> MomentState:
    """The state at y⁰ = Wˢx/√d for ‖x‖² = d, divided by width²."""
    theta = 1 if first_trained else 0
    return MomentState(0, theta / width, 0, theta / width, 2 / width, theta, theta, 1)


def linear(state: MomentState, fan_in: Number, width: Number, scale: Number) -> MomentState:
    """The state after y → √(scale/fan_in)·Wᵀy with W trained, from `fan_in` to `width` units."""
    A1, A2, c1, c2, e, pp, pq, qq = state
    trace, mixed, norm = state.second_moments()
    N, NN, s4 = width, width * width, scale * scale / (fan_in * fan_in)
    return MomentState(
        s4 * (NN * (A1 + 2 * c1 + e) + 2 * N * A2),
        s4 * (N * (trace + 2 * mixed + norm) + (NN + N) * A2),
        s4 * (NN * (c1 + e) + 2 * N * c2),
        s4 * (N * (mixed + norm) + (NN + N) * c2),
        s4 * (NN * e + 2 * N * norm),
        s4 * NN * (pp + 2 * pq + qq),
        s4 * NN * (pq + qq),
        s4 * NN * qq,
    )


def gate(state: MomentState, width: Number) -> MomentState:
    """The state after y → √2·relu(y), for a y that a linear layer of `width` units has just made."""
    A1, A2, c1, c2, e, pp, pq, qq = state
    trace, mixed, norm = state.second_moments()
    kappa = 1 / (width + 2)
    u, w = kappa * (trace + 2 * A2), kappa * (mixed + 2 * c2)
    return MomentState(A1 + u, A2 + u, c1 + w, c2 + w, e + 3 * kappa * norm, pp, pq, qq)


def residual_block(state: MomentState, width: Number, branch_depth: int, branch_scale: Number) -> MomentState:
    """The state after y → y + branch(y), with `branch_depth` matrices in the branch."""
    n, m, a = width, branch_depth, branch_scale**branch_depth
    branch, an = linear(state, n, n, branch_scale), a / n
    for _ in range(m - 1):
        branch = linear(gate(branch, n), n, n, branch_scale)
    A1, A2, c1, c2, e, pp, pq, qq = state
    trace, mixed, norm = state.second_moments()
    # the branch's last matrix is independent of the skip, so few of these products survive
    twice_skip_times_branch = MomentState(
        2 * a * (A1 + m * c1) + 4 * an * A2,
        2 * (a + an) * A2 + 2 * an * (trace + m * mixed),
        a * (2 * c1 + m * e) + 4 * an * c2,
        2 * (a + an) * c2 + an * (2 * mixed + m * norm),
        2 * a * e + 4 * an * norm,
        2 * a * (pp + m * pq),
        a * (2 * pq + m * qq),
        2 * a * qq,
    )
    return state.plus(twice_skip_times_branch, branch)


def dense_layer(state: MomentState, width: Number, layer: int) -> MomentState:
    """The state of [q⁰, …, q^layer] from that of [q⁰, …, q^{layer-1}], the new q read from all of these."""
    A1, A2, c1, c2, e, pp, pq, qq = state
    # twice the products of the old units and the new layer, which spreads its weight over `layer` old ones
    numerators = (2 * (A1 + c1), 2 * A2, 2 * c1 + e, 2 * c2, 2 * e, 2 * (pp + pq), 2 * pq + qq, 2 * qq)
    old_times_new = MomentState(*(numerator / layer for numerator in numerators))
    return state.plus(old_times_new, gate(linear(state, width * layer, width, 1), width))


def times_exact_power(matrix: Rows, power: int, vector: list[Fraction]) -> list[Fraction]:
    """matrix^power · vector in rationals; over one common denominator, so that only the end looks for divisors."""
    denominator = math.lcm(*(entry.denominator for row in matrix for entry in row))
    common = math.lcm(*(Fraction(entry).denominator for entry in vector))
    integers = np.array([[int(entry * denominator) for entry in row] for row in matrix], dtype=object)
    image = np.linalg.matrix_power(integers, power) @ np.array([int(entry * common) for entry in vector], dtype=object)
    return [Fraction(int(entry), common * denominator**power) for entry in image]


def times_power_of_identity_plus(excess: Rows, power: int, vector: list[Number]) -> tuple[list[float], int]:
    """(I + excess)^power · vector as (v, k), to be read as v·2^k.

    The identity is kept apart: a matrix within 1e-9 of it, raised to the billionth power, loses no digits.
    """
    factor = _NearIdentity(1.0, np.array([[float(entry) for entry in row] for row in excess]), 0)
    result = _NearIdentity(1.0, np.zeros_like(factor.excess), 0)
    while power:
        if power & 1:
            result = result.times(factor)
        power >>= 1
        factor = factor.times(factor) if power else factor
    start = np.array([float(entry) for entry in vector])
    return list(result.identity * start + result.excess @ start), result.exponent


class _NearIdentity:
    """The matrix (identity·I + excess)·2^exponent, its largest number between 1/2 and 1."""

    def __init__(self, identity: float, excess: np.ndarray, exponent: int) -> None:
        shift = math.frexp(max(identity, float(excess.max())))[1]
        self.identity = math.ldexp(identity, -shift)
        self.excess = np.ldexp(excess, -shift)
        self.exponent = exponent + shift

    def times(self, other: "_NearIdentity") -> "_NearIdentity":
        excess = self.identity * other.excess + other.identity * self.excess + self.excess @ other.excess
        return _NearIdentity(self.identity * other.identity, excess, self.exponent + other.exponent)
