"""Loss and Hessian of n-shortcut networks with any activations, by vectorised automatic differentiation."""

from collections.abc import Callable

import torch

from skiplens.core.axes import Float, Tensor
from skiplens.core.memory import budget_bytes
from skiplens.theory.shortcut_hessian.activations import BranchActivations
from skiplens.theory.shortcut_hessian.arguments import require_dense_fits
from skiplens.theory.shortcut_hessian.parameter_order import flatten, unflatten

_INSTEAD = "Use a matrix-free Hessian operator and Lanczos for its extreme eigenvalues and its density."
_ROWS_AT_ONCE = 200  # beyond this many, vectorised products get no faster on a processor


def shortcut_outputs(
    weights: Float[Tensor, "matrices outputs features"],
    inputs: Float[Tensor, "samples width"],
    branch_depth: int,
    activations: BranchActivations,
) -> Float[Tensor, "samples width"]:
    """The outputs of the n-shortcut network: units h + σ_post(W_n σ_mid(… W_1 σ_pre(h)))."""
    pre, mid, post = activations.resolved()
    h = inputs
    for branch in weights.unflatten(0, (-1, branch_depth)):
        z = pre(h)
        for matrix in branch[:-1]:
            z = mid(z @ matrix.T)
        h = h + post(z @ branch[-1].T)
    return h


def square_loss(outputs: Float[Tensor, "samples width"], targets: Float[Tensor, "samples width"]) -> Float[Tensor, ""]:
    """The loss 1/(2m) Σ ‖y − ŷ‖²."""
    return (outputs - targets).square().sum() / (2 * len(targets))


def hessian_by_autograd(
    loss: Callable[[Tensor], Tensor], params: Float[Tensor, " params"], samples: int = 1
) -> Float[Tensor, "params params"]:
    """The Hessian of a scalar function of a vector, many rows at once, symmetrised.

    Args:
        loss: Maps a parameter vector to a scalar.
        params: Where.
        samples: How many samples the loss sums over; the rows at once are chosen from it and the free memory.
    """
    require_dense_fits(len(params), params, _INSTEAD)
    per_row = 8 * params.element_size() * (len(params) + samples * max(1, int(len(params) ** 0.5)))
    rows = max(1, min(_ROWS_AT_ONCE, budget_bytes(params.device) // per_row))
    hessian = torch.func.jacrev(torch.func.grad(loss), chunk_size=rows)(params)
    return (hessian + hessian.mT) / 2


def branch_hessian_by_autograd(
    weights: Float[Tensor, "matrices outputs features"],
    inputs: Float[Tensor, "samples width"],
    targets: Float[Tensor, "samples width"],
    branch_depth: int,
    activations: BranchActivations,
) -> Float[Tensor, "params params"]:
    """The Hessian of the n-shortcut network's square loss in the order of definition 5."""
    width = weights.shape[1]

    def loss(params: Tensor) -> Tensor:
        return square_loss(shortcut_outputs(unflatten(params, width), inputs, branch_depth, activations), targets)

    return hessian_by_autograd(loss, flatten(weights.detach()), samples=len(inputs))
