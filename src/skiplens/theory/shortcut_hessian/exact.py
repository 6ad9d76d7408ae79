"""The exact Hessian of any n-shortcut network of the paper, by the fastest way that its activations allow."""

from skiplens.core.axes import Float, Tensor
from skiplens.theory.shortcut_hessian.activations import BranchActivations
from skiplens.theory.shortcut_hessian.arguments import check_network
from skiplens.theory.shortcut_hessian.autograd_hessian import branch_hessian_by_autograd
from skiplens.theory.shortcut_hessian.linear import linear_hessian
from skiplens.theory.shortcut_hessian.linear_chain import shortcut_units
from skiplens.theory.shortcut_hessian.moments import second_moments
from skiplens.theory.shortcut_hessian.rectified import rectified_hessian

_LINEAR = ("identity", "identity", "identity")
_MID_RELU = ("identity", "relu", "identity")


def shortcut_hessian(
    weights: Float[Tensor, "matrices outputs features"],
    inputs: Float[Tensor, "samples width"],
    targets: Float[Tensor, "samples width"],
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
    activations = activations or BranchActivations()
    names = activations.names(branch_depth)
    if names == _LINEAR:
        return linear_hessian(shortcut_units(weights, branch_depth), second_moments(inputs, targets))
    if names == _MID_RELU and branch_depth == 2:
        return rectified_hessian(weights, inputs, targets).total()
    return branch_hessian_by_autograd(weights, inputs, targets, branch_depth, activations)
