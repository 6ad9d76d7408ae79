"""The true Hessian of mid-ReLU 2-shortcut networks beside zero: each hidden unit sees the samples on its side."""

import torch

from skiplens.core.axes import Float, Tensor
from skiplens.theory.shortcut_hessian.arguments import check_network
from skiplens.theory.shortcut_hessian.listed import ListedSpectrum, listed_spectrum


def half_space_slopes(
    first_weights: Float[Tensor, "units hidden features"],
    inputs: Float[Tensor, "samples width"],
    targets: Float[Tensor, "samples width"],
) -> Float[Tensor, "units hidden outputs width"]:
    """G_j = ⟨(x − y) xᵀ [u_j · x > 0]⟩ for each row u_j of the first matrix of each unit."""
    check_network(first_weights, inputs, targets, 1)
    active = (torch.einsum("uhw,mw->uhm", first_weights, inputs) > 0).to(inputs.dtype)
    return torch.einsum("uhm,mi,mj->uhij", active, (inputs - targets) / len(inputs), inputs)


def near_zero_rectified_spectrum(
    first_weights: Float[Tensor, "units hidden features"],
    inputs: Float[Tensor, "samples width"],
    targets: Float[Tensor, "samples width"],
) -> ListedSpectrum:
    """The eigenvalues ±σ_i(G_j) in the limit of small weights whose first matrices have these directions."""
    sizes = torch.linalg.svdvals(half_space_slopes(first_weights, inputs, targets).double()).flatten()
    return listed_spectrum(torch.cat([sizes, -sizes]))
