"""What to choose: the scale of the branches for a depth, the width for a wanted fluctuation of the kernel."""

import dataclasses
import math
from bisect import bisect_left
from dataclasses import dataclass
from fractions import Fraction

from skiplens.base.errors import InvalidInputError
from skiplens.kernels.finite_width.moments import kernel_moments
from skiplens.kernels.finite_width.networks import Network, Number, ResNet, as_written, exp_or_infinity
from skiplens.kernels.finite_width.reduced_moments import resnet_scaled_variance

_SURELY_DIFFERENT = 1e-9  # the float recursion is good to about 1e-13; nearer calls are decided in rationals
_WIDEST = 2**40


@dataclass(frozen=True)
class BranchScaleAdvice:
    """A branch scale that keeps mean and fluctuation of the tangent kernel bounded at this and any larger depth.

    Attributes:
        branch_scale: α = (c/L)^{1/m}.
        norm_growth: (1 + c/L)^L, the growth of E‖y‖² through the network.
        norm_growth_bound: e^c, its bound at every depth.
        kernel_mean: m·c·(1 + c/L)^{L-1}, the mean of the kernel's diagonal at ‖x‖² = d.
        kernel_mean_bound: m·c·e^c, its bound at every depth.
        scaled_variance: Limit 4 + 8c/3 of width times relative variance.
    """

    branch_scale: float
    norm_growth: float
    norm_growth_bound: float
    kernel_mean: float
    kernel_mean_bound: float
    scaled_variance: float


@dataclass(frozen=True)
class WidthAdvice:
    """The least width at which the kernel's diagonal fluctuates no more than wanted.

    Attributes:
        width: That width.
        relative_variance: V/(E𝒢)² at that width, at most the wanted one.
        relative_variance_one_narrower: V/(E𝒢)² at one unit less, more than wanted; infinite if the width is 1.
    """

    width: int
    relative_variance: float
    relative_variance_one_narrower: float


def branch_scale(depth: int, branch_depth: int = 2, growth: Number = 1.0) -> BranchScaleAdvice:
    """The scale α = (growth/depth)^{1/branch_depth} with the bounds that it buys.

    With α^m = c/L the squared norm grows by less than e^c however deep the network is, and the relative variance of
    the kernel's diagonal tends to (4 + 8c/3)/width. (The paper's corollary 1 prints α ~ L^{-m}; the scale is L^{-1/m}.)

    Args:
        depth: Residual blocks (L).
        branch_depth: Weight matrices of a branch (m).
        growth: c, the logarithm of the growth of the squared norm that is allowed.
    """
    if not 0 < growth < math.inf:
        raise InvalidInputError(f"growth must be a positive number, got {growth}; 1 lets the squared norm grow by e.")
    ResNet(depth, 1, branch_depth)
    growth = float(growth)
    per_block = math.log1p(growth / depth)
    return BranchScaleAdvice(
        branch_scale=(growth / depth) ** (1 / branch_depth),
        norm_growth=exp_or_infinity(depth * per_block),
        norm_growth_bound=exp_or_infinity(growth),
        kernel_mean=branch_depth * growth * exp_or_infinity((depth - 1) * per_block),
        kernel_mean_bound=branch_depth * growth * exp_or_infinity(growth),
        scaled_variance=resnet_scaled_variance(growth),
    )


def width(relative_variance: Number, network: Network, trained: str = "branches") -> WidthAdvice:
    """The least width at which V/(E𝒢)² of the kernel's diagonal is at most `relative_variance`.

    The relative variance decreases with the width, so bisection finds the least one; calls too close for floats are
    decided in exact rationals.

    Args:
        relative_variance: The wanted V/(E𝒢)²; 0.01 means that the diagonal varies by 10 % from network to network.
        network: Architecture and depth; its own width does not matter.
        trained: Which layers are trained, as in `kernel_moments`.
    """
    if not 0 < relative_variance < math.inf:
        raise InvalidInputError(f"relative_variance must be a positive number, got {relative_variance}.")

    def is_enough(units: int) -> bool:
        floating = _relative(network, units, trained)
        if abs(floating - relative_variance) > _SURELY_DIFFERENT * relative_variance:
            return floating < relative_variance
        exact = kernel_moments(dataclasses.replace(network, width=units), trained, exact=True)
        return Fraction(exact.relative_variance) <= as_written(relative_variance)

    enough = 1
    while not is_enough(enough):
        enough *= 2
        if enough > _WIDEST:
            raise InvalidInputError(
                f"A relative variance of {relative_variance} needs more than {_WIDEST} units; ask for a larger one."
            )
    least = bisect_left(range(enough + 1), True, lo=enough // 2 + 1, hi=enough, key=is_enough)
    narrower = _relative(network, least - 1, trained) if least > 1 else math.inf
    return WidthAdvice(least, _relative(network, least, trained), narrower)


def _relative(network: Network, units: int, trained: str) -> float:
    return float(kernel_moments(dataclasses.replace(network, width=units), trained).relative_variance)
