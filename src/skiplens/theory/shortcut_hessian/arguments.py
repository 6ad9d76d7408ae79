"""What every function about shortcut networks asks of its data, weights and counts."""

import torch

from skiplens.core.axes import Tensor
from skiplens.core.errors import InvalidInputError
from skiplens.core.memory import budget_bytes, require_fits


def check_data(inputs: Tensor, targets: Tensor, same_width: bool = True) -> None:
    """Refuse data that are not two finite matrices (samples, width) with one row per sample."""
    for name, matrix in (("inputs", inputs), ("targets", targets)):
        if matrix.ndim != 2 or matrix.shape[0] == 0 or not matrix.is_floating_point():
            raise InvalidInputError(
                f"The {name} must be a floating-point matrix (samples, width) with at least one sample; "
                f"got shape {tuple(matrix.shape)} of {matrix.dtype}. Flatten images and one-hot encode labels."
            )
        require_finite(matrix, name)
    if inputs.shape[0] != targets.shape[0]:
        raise InvalidInputError(
            f"There are {inputs.shape[0]} inputs but {targets.shape[0]} targets; hand over one target per input."
        )
    if same_width and inputs.shape[1] != targets.shape[1]:
        raise InvalidInputError(
            f"A shortcut carries the input to the output, so inputs and targets need the same width; "
            f"got {inputs.shape[1]} and {targets.shape[1]}. Project the inputs, or pad the targets with zeros."
        )


def require_finite(matrix: Tensor, name: str) -> None:
    """Refuse NaN and infinity, and say where the first one is."""
    bad = (~torch.isfinite(matrix)).nonzero()
    if len(bad):
        place = tuple(bad[0].tolist())
        raise InvalidInputError(
            f"The {name} hold {matrix[place].item()} at position {place}; "
            "remove or replace samples and weights that are not finite."
        )


def check_weights(weights: Tensor, branch_depth: int) -> int:
    """The number of units, refused unless the weights are whole units of square finite matrices."""
    if weights.ndim != 3 or weights.shape[1] != weights.shape[2] or weights.shape[0] == 0:
        raise InvalidInputError(
            f"The weights must be a stack of square matrices (matrices, width, width); got {tuple(weights.shape)}. "
            "Stack them in order of application; for rectangular ones use LinearUnit."
        )
    require_finite(weights, "weights")
    check_count(branch_depth, "branch_depth", "the number of matrices in each unit")
    if weights.shape[0] % branch_depth:
        raise InvalidInputError(
            f"{weights.shape[0]} matrices do not make whole units of branch_depth={branch_depth}; "
            "leave some out or choose another branch_depth."
        )
    return weights.shape[0] // branch_depth


def check_network(weights: Tensor, inputs: Tensor, targets: Tensor, branch_depth: int) -> None:
    """Refuse weights and data that are broken or do not belong together."""
    check_data(inputs, targets)
    check_weights(weights, branch_depth)
    if weights.shape[1] != inputs.shape[1]:
        raise InvalidInputError(
            f"The weights have width {weights.shape[1]}, but the data have {inputs.shape[1]}; they must be equal."
        )


def check_count(value: int, name: str, meaning: str) -> int:
    """A whole number of at least one, or an error that names it."""
    if isinstance(value, bool) or int(value) != value or value < 1:
        raise InvalidInputError(f"{name} must be {meaning}, a whole number of at least 1; got {value!r}.")
    return int(value)


def require_dense_fits(params: int, like: Tensor, instead: str) -> None:
    """Refuse a dense Hessian that would not fit twice (the matrix and one workspace of its size)."""
    needed = 2 * params**2 * like.element_size()
    what = f"A dense Hessian of {params:,} parameters with its workspace"
    require_fits(needed, what, instead, budget_bytes(like.device))
