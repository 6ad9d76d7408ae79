"""Theorem 2: the loss of an n-shortcut network around zero weights, for any depth, without forming the Hessian."""

from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from skiplens.base import Float, InvalidInputError
from skiplens.base.memory import fresh_zeros
from skiplens.linalg.second_moments import check_data
from skiplens.papers.li2016_shortcuts.hessian.activations import (
    BranchActivations,
    Matrices,
    Samples,
    check_count,
    check_network,
    require_dense_fits,
    vanishing,
)
from skiplens.papers.li2016_shortcuts.hessian.one_shortcut import ToeplitzBlocks, one_shortcut_blocks
from skiplens.papers.li2016_shortcuts.hessian.spectrum import CountedSpectrum, ListedSpectrum, Spectrum, listed_spectrum


@dataclass(frozen=True, eq=False)
class ZeroPoint:
    """What is known of the loss at zero weights.

    The lowest derivative that does not vanish has order n = `branch_depth` and lives inside one unit, with one factor
    from each of its matrices: ∂ⁿL / ∂W_n[i, a] ∂W_{n−1}[a, b] … ∂W_1[c, j] = `slope`[i, j].
    """

    units: int
    branch_depth: int
    # s G_0 with G_0 = ⟨(x − y) σ_pre(x)ᵀ⟩ and s = σ_mid'(0)ⁿ⁻¹ σ_post'(0); with a bias, its column is last.
    slope: Float[Tensor, "width features"]
    toeplitz: ToeplitzBlocks | None = None  # the blocks of the Hessian, for one matrix per unit

    @property
    def params(self) -> int:
        """Number of parameters."""
        width, features = self.slope.shape
        return self.units * width * (features + (self.branch_depth - 1) * width)

    @property
    def order(self) -> int | None:
        """The order of the lowest derivative that does not vanish; None if s G_0 = 0, where it is above n."""
        return self.branch_depth if bool((self.slope != 0).any()) else None

    @cached_property
    def spectrum(self) -> Spectrum:
        """All eigenvalues of the Hessian with their multiplicities."""
        if self.toeplitz is not None:
            return self.toeplitz.spectrum(self.units)
        width, features = self.slope.shape
        values, times = torch.zeros(1, dtype=torch.float64, device=self.slope.device), self.params
        if self.branch_depth == 2:
            # ±σ_i(s G_0), and zeros with biases; the singular values of GᵀG would lose half of the digits.
            sizes = torch.linalg.svdvals(self.slope.double())
            values, times = torch.cat([sizes, -sizes, sizes.new_zeros(features - width)]), self.units * width
        return listed_spectrum(values, torch.full(values.shape, times, dtype=torch.int64, device=values.device))

    def dense(self) -> Float[Tensor, "params params"]:
        """The Hessian itself in the order of definition 5 (a bias after the matrix it belongs to)."""
        require_dense_fits(self.params, self.slope, "Its eigenvalues need no matrix: use .spectrum.")
        if self.toeplitz is not None:
            return self.toeplitz.dense(self.units)
        if self.branch_depth == 2:
            return torch.block_diag(*[two_shortcut_unit(self.slope)] * self.units)
        return fresh_zeros(self.slope, self.params, self.params)


def hessian_at_zero(
    inputs: Samples,
    targets: Samples,
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
    pre, mid, post = activations.resolved()
    s = vanishing(post, "post").slope()
    if branch_depth > 1:
        s *= vanishing(mid, "mid").slope() ** (branch_depth - 1)
    features = pre(inputs)
    if bias:
        features = torch.cat([features, features.new_ones(len(features), 1)], dim=1)
    slope = s * (inputs - targets).T @ features / len(inputs)
    toeplitz = one_shortcut_blocks(inputs, targets, activations) if branch_depth == 1 else None
    return ZeroPoint(units, branch_depth, slope, toeplitz)


def two_shortcut_unit(slope: Float[Tensor, "width features"]) -> Float[Tensor, "entries entries"]:
    """The block [[0, Aᵀ], [A, 0]] of one unit: its first matrix (with its bias as last column), then its second.

    A = (I ⊗ s G_0) K, where `slope` is s G_0; it has one column more than rows where the first matrix has a bias.
    """
    width, features = slope.shape
    eye = torch.eye(width, dtype=slope.dtype, device=slope.device)
    A = torch.einsum("jh,ik->jikh", eye, slope).reshape(width * width, features * width)
    second, first = A.shape
    unit = A.new_zeros(first + second, first + second)
    unit[first:, :first] = A
    unit[:first, first:] = A.T
    return unit


FirstMatrices = Float[Tensor, "units hidden features"]


def half_space_slopes(
    first_weights: FirstMatrices, inputs: Samples, targets: Samples
) -> Float[Tensor, "units hidden outputs width"]:
    """G_j = ⟨(x − y) xᵀ [u_j · x > 0]⟩ for each row u_j of the first matrix of each unit."""
    check_network(first_weights, inputs, targets, 1)
    active = (torch.einsum("uhw,mw->uhm", first_weights, inputs) > 0).to(inputs.dtype)
    return torch.einsum("uhm,mi,mj->uhij", active, (inputs - targets) / len(inputs), inputs)


def near_zero_rectified_spectrum(first_weights: FirstMatrices, inputs: Samples, targets: Samples) -> ListedSpectrum:
    """The eigenvalues ±σ_i(G_j) in the limit of small weights whose first matrices have these directions."""
    sizes = torch.linalg.svdvals(half_space_slopes(first_weights, inputs, targets).double()).flatten()
    return listed_spectrum(torch.cat([sizes, -sizes]))


def orthogonal_spectrum(weights: Matrices, inputs: Samples, targets: Samples) -> CountedSpectrum:
    """The Hessian's eigenvalues of the plain linear network with these orthogonal matrices Q_1, …, Q_D.

    The substitution W_k = U_k (I + V_k) U_{k−1}ᵀ with U_k = Q_k … Q_1 is an orthonormal change of parameters that
    makes it a 1-shortcut network with targets Uᵀ y, U = U_D. No matrix is larger than width² × width².
    """
    check_network(weights, inputs, targets, 1)
    product = eye = torch.eye(weights.shape[1], dtype=weights.dtype, device=weights.device)
    for matrix in weights:
        error = (matrix.T @ matrix - eye).abs().max().item()
        if error > len(matrix) * 1e2 * torch.finfo(matrix.dtype).eps:
            raise InvalidInputError(
                f"The weights must be orthogonal; WᵀW differs from the identity by {error:.2g}. "
                "For other weights use linear_spectrum(plain_units(weights), moments)."
            )
        product = matrix @ product
    return one_shortcut_blocks(inputs, targets @ product, BranchActivations()).spectrum(len(weights))
