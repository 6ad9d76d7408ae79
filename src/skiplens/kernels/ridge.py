"""Kernel ridge regression: weights of the training samples."""

import torch
from torch import Tensor

from skiplens.core.axes import Float
from skiplens.core.errors import DidNotConverge, InvalidInputError


def ridge_weights(
    K: Float[Tensor, "samples samples"], targets: Float[Tensor, "samples outputs"], ridge: float
) -> Float[Tensor, "samples outputs"]:
    """(K + ridge·I)⁻¹ targets.

    Raises:
        DidNotConverge: If the matrix is singular to working precision.
    """
    if not ridge >= 0:
        raise InvalidInputError(f"ridge must not be negative, got {ridge}.")
    shifted = K.clone()  # with the factor, two matrices beside K: 50,000 samples in float64 then fit in 60 GB
    shifted.diagonal().add_(ridge)
    factor, failed = torch.linalg.cholesky_ex(shifted)
    if failed:
        raise DidNotConverge(
            f"The kernel matrix of {len(K)} samples plus ridge {ridge:g} is not positive definite in {K.dtype}: "
            "some inputs are (nearly) equal. Take a larger ridge or float64 inputs."
        )
    return torch.cholesky_solve(targets, factor)
