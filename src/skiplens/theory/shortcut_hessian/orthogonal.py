"""Plain linear networks at orthogonal weights: the same Hessian as a 1-shortcut network at zero, labels rotated."""

import torch

from skiplens.core.axes import Float, Tensor
from skiplens.core.errors import InvalidInputError
from skiplens.theory.shortcut_hessian.activations import BranchActivations
from skiplens.theory.shortcut_hessian.arguments import check_network
from skiplens.theory.shortcut_hessian.counted import CountedSpectrum
from skiplens.theory.shortcut_hessian.one_shortcut import one_shortcut_blocks


def orthogonal_spectrum(
    weights: Float[Tensor, "matrices outputs features"],
    inputs: Float[Tensor, "samples width"],
    targets: Float[Tensor, "samples width"],
) -> CountedSpectrum:
    """The Hessian's eigenvalues of the plain linear network with these orthogonal matrices Q_1, …, Q_D.

    The substitution W_k = U_k (I + V_k) U_{k−1}ᵀ with U_k = Q_k … Q_1 is an orthonormal change of parameters that
    makes it a 1-shortcut network with targets Uᵀ y, U = U_D. No matrix is larger than width² × width².
    """
    check_network(weights, inputs, targets, 1)
    product = torch.eye(weights.shape[1], dtype=weights.dtype, device=weights.device)
    for matrix in weights:
        _require_orthogonal(matrix)
        product = matrix @ product
    return one_shortcut_blocks(inputs, targets @ product, BranchActivations()).spectrum(len(weights))


def _require_orthogonal(matrix: Tensor) -> None:
    eye = torch.eye(len(matrix), dtype=matrix.dtype, device=matrix.device)
    error = (matrix.T @ matrix - eye).abs().max().item()
    if error > len(matrix) * 1e2 * torch.finfo(matrix.dtype).eps:
        raise InvalidInputError(
            f"The weights must be orthogonal; WᵀW differs from the identity by {error:.2g}. "
            "For other weights use linear_spectrum(plain_units(weights), moments)."
        )
