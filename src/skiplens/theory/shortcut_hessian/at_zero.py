"""Theorem 2: the loss of an n-shortcut network around zero weights, for any depth, without forming the Hessian."""

import math
from dataclasses import dataclass
from functools import cached_property

import torch

from skiplens.core.axes import Float, Tensor
from skiplens.core.errors import InvalidInputError
from skiplens.core.fresh_memory import fresh_zeros
from skiplens.theory.shortcut_hessian.activations import BranchActivations, vanishing
from skiplens.theory.shortcut_hessian.arguments import check_count, check_data, require_dense_fits
from skiplens.theory.shortcut_hessian.listed import listed_spectrum
from skiplens.theory.shortcut_hessian.one_shortcut import ToeplitzBlocks, one_shortcut_blocks
from skiplens.theory.shortcut_hessian.spectrum import Spectrum
from skiplens.theory.shortcut_hessian.two_shortcut import two_shortcut_spectrum, two_shortcut_unit

_INSTEAD = "Its eigenvalues need no matrix: use .spectrum."


@dataclass(frozen=True, eq=False)
class ZeroPoint:
    """What is known of the loss at zero weights.

    The lowest derivative that does not vanish has order n = `branch_depth` and lives inside one unit, with one factor
    from each of its matrices: ∂ⁿL / ∂W_n[i, a] ∂W_{n−1}[a, b] … ∂W_1[c, j] = `slope`[i, j].
    """

    units: int
    branch_depth: int
    slope: Float[Tensor, "width features"]
    """s G_0 with G_0 = ⟨(x − y) σ_pre(x)ᵀ⟩ and s = σ_mid'(0)ⁿ⁻¹ σ_post'(0); with a bias, its column is last."""
    toeplitz: ToeplitzBlocks | None = None
    """The blocks of the Hessian, for one matrix per unit."""

    @property
    def params(self) -> int:
        """Number of parameters."""
        width, features = self.slope.shape
        return self.units * width * (features + (self.branch_depth - 1) * width)

    @property
    def order(self) -> int | None:
        """The order of the lowest derivative that does not vanish; None if s G_0 = 0, where it is above n."""
        return self.branch_depth if bool((self.slope != 0).any()) else None

    @property
    def is_strict_saddle(self) -> bool:
        """Whether zero is stationary and the loss goes down along an eigenvector: two matrices per unit, s G_0 ≠ 0."""
        return self.branch_depth == 2 and self.order == 2

    @cached_property
    def spectrum(self) -> Spectrum:
        """All eigenvalues of the Hessian with their multiplicities."""
        if self.toeplitz is not None:
            return self.toeplitz.spectrum(self.units)
        if self.branch_depth == 2:
            return two_shortcut_spectrum(self.slope, self.units)
        zero = torch.zeros(1, dtype=torch.float64, device=self.slope.device)
        return listed_spectrum(zero, torch.tensor([self.params], device=zero.device))

    def dense(self) -> Float[Tensor, "params params"]:
        """The Hessian itself in the order of definition 5 (a bias after the matrix it belongs to)."""
        require_dense_fits(self.params, self.slope, _INSTEAD)
        if self.toeplitz is not None:
            return self.toeplitz.dense(self.units)
        if self.branch_depth == 2:
            return torch.block_diag(*[two_shortcut_unit(self.slope)] * self.units)
        return fresh_zeros(self.slope, self.params, self.params)

    def derivative_along(self, direction: Float[Tensor, "matrices width features"]) -> Float[Tensor, ""]:
        """The n-th derivative of L(t V) at t = 0 for a stack of matrices V: n! Σ_r ⟨s G_0, V_{r,n} … V_{r,1}⟩."""
        matrices = self.units * self.branch_depth
        if direction.shape != (matrices, *self.slope.shape):
            raise InvalidInputError(
                f"A direction is a stack of {matrices} matrices of shape {tuple(self.slope.shape)}, one for each "
                f"weight matrix (networks with biases have none); got {tuple(direction.shape)}."
            )
        branches = direction.unflatten(0, (self.units, self.branch_depth))
        product = branches[:, 0]
        for position in range(1, self.branch_depth):
            product = branches[:, position] @ product
        return math.factorial(self.branch_depth) * (self.slope * product).sum()


def hessian_at_zero(
    inputs: Float[Tensor, "samples width"],
    targets: Float[Tensor, "samples width"],
    units: int,
    branch_depth: int = 2,
    activations: BranchActivations | None = None,
    bias: bool = False,
) -> ZeroPoint:
    """The loss 1/(2m) Σ ‖y − ŷ‖² around zero weights of an n-shortcut network (theorem 2).

    Time and memory do not depend on the depth. ReLU counts with the slope 1/2 at zero, as in the paper; autograd would
    call the Hessian zero (see `near_zero_rectified_spectrum` for the true one beside zero).

    Args:
        inputs: Samples in rows.
        targets: One row per sample, of the same width.
        units: Residual units (R).
        branch_depth: Matrices per unit (n).
        activations: Those of every branch; none by default.
        bias: A bias after the first matrix of each branch, as in theorem 1; for two matrices per unit.

    Examples:
        >>> x, y = torch.eye(3, dtype=torch.float64), torch.zeros(3, 3, dtype=torch.float64)
        >>> hessian_at_zero(x, y, units=1000).spectrum.condition_number
        1.0
    """
    check_data(inputs, targets)
    check_count(units, "units", "the number of residual units")
    check_count(branch_depth, "branch_depth", "the number of matrices in each unit")
    if bias and branch_depth != 2:
        raise InvalidInputError(f"Biases are known for two matrices per unit (theorem 1); got {branch_depth}.")
    activations = activations or BranchActivations()
    slope = _slope(inputs, targets, branch_depth, activations, bias)
    toeplitz = one_shortcut_blocks(inputs, targets, activations) if branch_depth == 1 else None
    return ZeroPoint(units, branch_depth, slope, toeplitz)


def _slope(inputs: Tensor, targets: Tensor, branch_depth: int, activations: BranchActivations, bias: bool) -> Tensor:
    """The matrix s ⟨(x − y) σ_pre(x)ᵀ⟩, with a constant feature for the bias."""
    pre, mid, post = activations.resolved()
    s = vanishing(post, "post").slope()
    if branch_depth > 1:
        s *= vanishing(mid, "mid").slope() ** (branch_depth - 1)
    features = pre(inputs)
    if bias:
        features = torch.cat([features, features.new_ones(len(features), 1)], dim=1)
    return s * (inputs - targets).T @ features / len(inputs)
