"""The Hessian at zero of networks with two matrices per unit: block diagonal, the same for every depth."""

import torch

from skiplens.core.axes import Float, Tensor
from skiplens.theory.shortcut_hessian.listed import ListedSpectrum, listed_spectrum


def two_shortcut_coupling(slope: Float[Tensor, "width features"]) -> Float[Tensor, "second first"]:
    """The block A = (I ⊗ s G_0) K of one unit [[0, Aᵀ], [A, 0]]: rows are its second matrix, columns its first.

    `slope` is s G_0; it has one column more than rows where the first matrix has a bias (s [G_0, g]).
    """
    width, features = slope.shape
    eye = torch.eye(width, dtype=slope.dtype, device=slope.device)
    return torch.einsum("jh,ik->jikh", eye, slope).reshape(width * width, features * width)


def two_shortcut_unit(slope: Float[Tensor, "width features"]) -> Float[Tensor, "entries entries"]:
    """The diagonal block of one unit: its first matrix (with its bias as last column), then its second."""
    A = two_shortcut_coupling(slope)
    second, first = A.shape
    unit = A.new_zeros(first + second, first + second)
    unit[first:, :first] = A
    unit[:first, first:] = A.T
    return unit


def two_shortcut_spectrum(slope: Float[Tensor, "width features"], units: int) -> ListedSpectrum:
    """The eigenvalues ±σ_i(s G_0), each `units` · width times, and `units` · width zeros with biases.

    From singular values of `slope` itself: those of GᵀG would lose half of the digits.
    """
    width, features = slope.shape
    sizes = torch.linalg.svdvals(slope.double())
    zeros = sizes.new_zeros(features - width)
    values = torch.cat([sizes, -sizes, zeros])
    copies = torch.full(values.shape, units * width, dtype=torch.int64, device=values.device)
    return listed_spectrum(values, copies)
