"""Exact mean and variance of the tangent kernel's diagonal at any width and depth.

Littwin & Wolf 2020 bound this variance (theorems 5 and 6); here it is computed, by a linear recursion over the layers.
"""

import math
from dataclasses import dataclass
from fractions import Fraction

from skiplens.core.errors import InvalidInputError
from skiplens.theory.finite_width.matrix_power import Rows, times_exact_power, times_power_of_identity_plus
from skiplens.theory.finite_width.moment_state import (
    MomentState,
    dense_layer,
    first_layer,
    gate,
    linear,
    residual_block,
)
from skiplens.theory.finite_width.networks import (
    DenseNet,
    Network,
    Number,
    ResNet,
    Vanilla,
    as_written,
    exact_gain,
    exp_or_infinity,
    trains_first,
    trains_last,
)


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

    def scaled(self, input_scale: Number) -> "KernelMoments":
        """The moments at ‖x‖² = input_scale·d."""
        return KernelMoments(
            self.mean * input_scale,
            self.relative_variance,
            self.log_mean + math.log(input_scale),
            self.log_relative_variance,
        )


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
    if exact:
        return _exact(network, trained)
    return _floating(network, trained)


def resnet(depth: int, branch_depth: int, branch_scale: Number, width: int, trained: str = "branches") -> KernelMoments:
    """Moments of the tangent kernel's diagonal of a ResNet (L, m, α, n)."""
    return kernel_moments(ResNet(depth, width, branch_depth, branch_scale), trained)


def densenet(depth: int, width: int, trained: str = "branches") -> KernelMoments:
    """Moments of the tangent kernel's diagonal of a DenseNet (L, n)."""
    return kernel_moments(DenseNet(depth, width), trained)


def vanilla(depth: int, width: int, trained: str = "branches") -> KernelMoments:
    """Moments of the tangent kernel's diagonal of a network without skip connections (L, n)."""
    return kernel_moments(Vanilla(depth, width), trained)


def mean_over_growth(network: Network, trained: str, exact: bool = False) -> Number:
    """E𝒢 divided by the growth of E‖y‖² over the depth: m·L·a/(1+a), H_L or L, plus 1 for a trained end layer."""
    one = Fraction(1)
    match network:
        case ResNet():
            a = exact_gain(network)
            inner = network.branch_depth * network.depth * a / (1 + a)
        case DenseNet() if exact:
            inner = sum((one / layer for layer in range(1, network.depth + 1)), start=Fraction(0))
        case DenseNet():
            return math.fsum(1 / layer for layer in range(1, network.depth + 1)) + _ends(trained)
        case Vanilla():
            inner = one * network.depth
    return inner + _ends(trained) if exact else float(inner + _ends(trained))


def log_growth(network: Network) -> float:
    """Natural logarithm of the growth of E‖y‖² from first to last layer: L·log(1+a) for a ResNet, else 0."""
    return network.depth * math.log1p(exact_gain(network))


def _ends(trained: str) -> int:
    return trains_first(trained) + trains_last(trained)


def _exact(network: Network, trained: str) -> KernelMoments:
    n = Fraction(network.width)
    start = _rational(first_layer(n, trains_first(trained)))
    if isinstance(network, DenseNet):
        end = _dense(MomentState(*start), n, network.depth)
    else:
        end = MomentState(*times_exact_power(_matrix(network), network.depth, start))
    mean = mean_over_growth(network, trained, exact=True) * (1 + exact_gain(network)) ** network.depth
    relative = _variance(end, trained) / (mean * mean)
    return KernelMoments(mean, relative, _log(mean), _log(relative))


def _floating(network: Network, trained: str) -> KernelMoments:
    n = Fraction(network.width)
    if isinstance(network, DenseNet):
        start = first_layer(float(network.width), trains_first(trained))
        end, exponent = _dense(start, float(network.width), network.depth), 0
    else:
        start = first_layer(n, trains_first(trained))
        vector, exponent = times_power_of_identity_plus(_excess(network), network.depth, list(start))
        end = MomentState(*vector)
    mean = mean_over_growth(network, trained)
    relative = float(_variance(end, trained)) / mean**2
    return KernelMoments(
        mean * exp_or_infinity(log_growth(network)),
        _ldexp(relative, exponent),
        math.log(mean) + log_growth(network),
        math.log(relative) + exponent * math.log(2),
    )


def _variance(end: MomentState, trained: str) -> Number:
    inner = end.trace_variance + 2 * end.square_trace
    return inner + 2 * end.covariance + end.norm_variance if trains_last(trained) else inner


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
        return residual_block(state, n, network.branch_depth, as_written(network.branch_scale))

    columns = [block(MomentState(*(Fraction(i == j) for i in range(8)))) for j in range(8)]
    return [_rational(row) for row in zip(*columns, strict=True)]


def _excess(network: ResNet | Vanilla) -> Rows:
    """What one block adds to the identity after the growth of the squared mean norm is divided out."""
    a = exact_gain(network)
    rows = _matrix(network)
    return [[entry / (1 + a) ** 2 - (i == j) for j, entry in enumerate(row)] for i, row in enumerate(rows)]


def _rational(numbers: tuple[Number, ...]) -> list[Fraction]:
    return [Fraction(number) for number in numbers]


def _log(number: Number) -> float:
    fraction = Fraction(number)
    return math.log(fraction.numerator) - math.log(fraction.denominator)


def _ldexp(factor: float, exponent: int) -> float:
    try:
        return math.ldexp(factor, exponent)
    except OverflowError:
        return math.inf
