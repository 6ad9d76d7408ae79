"""The exact Hessian of any n-shortcut network of the paper, by the fastest way that its activations allow.

Parameters are ordered as in definition 5: unit, matrix in the unit, column, row; the row is fastest.
"""

from collections.abc import Callable

import torch
from torch import Tensor

from skiplens.base import Float, InvalidInputError, budget_bytes
from skiplens.linalg.second_moments import second_moments
from skiplens.papers.li2016_shortcuts.hessian.activations import (
    BranchActivations,
    Matrices,
    Samples,
    check_network,
    require_dense_fits,
)
from skiplens.papers.li2016_shortcuts.hessian.linear import linear_hessian, shortcut_units
from skiplens.papers.li2016_shortcuts.hessian.rectified import rectified_hessian


def shortcut_hessian(
    weights: Matrices,
    inputs: Samples,
    targets: Samples,
    branch_depth: int = 2,
    activations: BranchActivations | None = None,
) -> Float[Tensor, "params params"]:
    """The exact Hessian of 1/(2m) Σ ‖y − ŷ‖² in the order of definition 5.

    Closed form for linear networks (from second moments, whatever the number of samples) and for two matrices with a
    ReLU between them; vectorised autograd for the rest.

    Args:
        weights: All matrices in order of application.
        inputs: Samples in rows.
        targets: One row per sample.
        branch_depth: Matrices per unit (n).
        activations: Those of every branch; none by default.
    """
    check_network(weights, inputs, targets, branch_depth)
    used = activations or BranchActivations()
    names = used.names(branch_depth)
    if names == ("identity", "identity", "identity"):
        return linear_hessian(shortcut_units(weights, branch_depth), second_moments(inputs, targets))
    if names == ("identity", "relu", "identity") and branch_depth == 2:
        return rectified_hessian(weights, inputs, targets).total()

    def loss(params: Tensor) -> Tensor:
        matrices = unflatten(params, weights.shape[1])
        return square_loss(shortcut_outputs(matrices, inputs, branch_depth, used), targets)

    return hessian_by_autograd(loss, flatten(weights.detach()), samples=len(inputs))


def shortcut_outputs(weights: Matrices, inputs: Samples, branch_depth: int, activations: BranchActivations) -> Samples:
    """The outputs of the n-shortcut network: units h + σ_post(W_n σ_mid(… W_1 σ_pre(h)))."""
    pre, mid, post = activations.resolved()
    h = inputs
    for branch in weights.unflatten(0, (-1, branch_depth)):
        z = pre(h)
        for matrix in branch[:-1]:
            z = mid(z @ matrix.T)
        h = h + post(z @ branch[-1].T)
    return h


def square_loss(outputs: Samples, targets: Samples) -> Float[Tensor, ""]:
    """The loss 1/(2m) Σ ‖y − ŷ‖²."""
    return (outputs - targets).square().sum() / (2 * len(targets))


def hessian_by_autograd(
    loss: Callable[[Tensor], Tensor], params: Float[Tensor, " params"], samples: int = 1
) -> Float[Tensor, "params params"]:
    """The Hessian of a scalar function of a vector, symmetrised.

    How many rows are taken at once is chosen from the free memory and the number of samples the loss sums over.
    """
    require_dense_fits(len(params), params)
    per_row = 8 * params.element_size() * (len(params) + samples * max(1, int(len(params) ** 0.5)))
    rows = max(1, min(200, budget_bytes(params.device) // per_row))  # beyond 200 they get no faster on a processor
    hessian = torch.func.jacrev(torch.func.grad(loss), chunk_size=rows)(params)
    return (hessian + hessian.mT) / 2


def flatten(weights: Float[Tensor, "*batch matrices outputs features"]) -> Float[Tensor, "*batch params"]:
    """The weights as one vector vec(W_1), vec(W_2), …, columns stacked."""
    return weights.transpose(-2, -1).flatten(-3)


def unflatten(params: Float[Tensor, "*batch params"], width: int) -> Float[Tensor, "*batch matrices width width"]:
    """The stack of square matrices whose vector is `params`."""
    if params.shape[-1] % width**2:
        raise InvalidInputError(
            f"{params.shape[-1]} parameters are not whole matrices of width {width} ({width**2} entries each)."
        )
    return params.unflatten(-1, (-1, width, width)).transpose(-2, -1)


def commutation_matrix(rows: int, columns: int | None = None) -> Float[Tensor, "entries entries"]:
    """The permutation K with K vec(V) = vec(Vᵀ) for every V of `rows` × `columns` (square by default)."""
    columns = rows if columns is None else columns
    place = torch.arange(rows * columns).reshape(columns, rows)
    return torch.eye(rows * columns, dtype=torch.float64)[place.T.reshape(-1)]
