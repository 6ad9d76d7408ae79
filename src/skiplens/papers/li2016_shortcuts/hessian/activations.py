"""Activations of a branch and what theorem 2 needs of them: value, slope and curvature at zero."""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F

from skiplens.base import Float, InvalidInputError, budget_bytes, did_you_mean, require_fits
from skiplens.linalg.second_moments import check_data, require_finite

Samples = Float[Tensor, "samples width"]
Matrices = Float[Tensor, "matrices outputs features"]  # of all units, in order of application
_ZERO = torch.zeros((), dtype=torch.float64)
_MATRIX_FREE = "Use a matrix-free Hessian operator and Lanczos for its extreme eigenvalues and its density."


@dataclass(frozen=True)
class Activation:
    """An elementwise map; `slope` and `curvature` at zero are taken by autograd unless they are given.

    A kink at zero has no derivative there. The least-squares polynomial on [−ε, ε] has the mean of the two slopes, 1/2
    for ReLU, which is also the central difference; autograd would say 0. Its curvature grows like 1/ε: `has_curvature`
    is False.
    """

    name: str
    function: Callable[[Tensor], Tensor]
    kink_slope: float | None = None
    has_curvature: bool = True

    def __call__(self, values: Tensor) -> Tensor:
        """The activation of each entry."""
        return self.function(values)

    def derivative(self, values: Tensor) -> Tensor:
        """The derivative at each entry."""
        return _derivative(self.function)(values)

    def at_zero(self) -> float:
        """The value at zero."""
        return self.function(_ZERO).item()

    def slope(self) -> float:
        """The slope at zero."""
        return self.derivative(_ZERO).item() if self.kink_slope is None else self.kink_slope

    def curvature(self) -> float:
        """The second derivative at zero."""
        if not self.has_curvature:
            raise InvalidInputError(
                f"{self.name} has no second derivative at zero, and a one-matrix branch needs it after its matrix. "
                "Use a smooth post activation, or evaluate the Hessian at non-zero weights with shortcut_hessian."
            )
        return _derivative(_derivative(self.function))(_ZERO).item()


def _derivative(function: Callable[[Tensor], Tensor]) -> Callable[[Tensor], Tensor]:
    return torch.func.grad(lambda values: function(values).sum())


ACTIVATIONS = {
    entry.name: entry
    for entry in (
        Activation("identity", lambda values: values),
        Activation("relu", torch.relu, kink_slope=0.5, has_curvature=False),
        Activation("leaky_relu", F.leaky_relu, kink_slope=0.505, has_curvature=False),
        Activation("elu", F.elu, has_curvature=False),
        Activation("tanh", torch.tanh),
        Activation("gelu", F.gelu),
        Activation("silu", F.silu),
        Activation("sigmoid", torch.sigmoid),
        Activation("softplus", F.softplus),
    )
}
"""The activations known by name."""


@dataclass(frozen=True)
class BranchActivations:
    """The activations before the first matrix, between the matrices and after the last matrix of each branch."""

    pre: str | Activation = "identity"
    mid: str | Activation = "identity"
    post: str | Activation = "identity"

    def resolved(self) -> tuple[Activation, Activation, Activation]:
        """The three activations themselves."""
        return as_activation(self.pre), as_activation(self.mid), as_activation(self.post)

    def names(self, branch_depth: int) -> tuple[str, str, str]:
        """Their names; a branch of one matrix has no mid activation."""
        pre, mid, post = self.resolved()
        return pre.name, mid.name if branch_depth > 1 else "identity", post.name


def as_activation(activation: str | Activation) -> Activation:
    """The activation called so, or the one given."""
    if isinstance(activation, Activation):
        return activation
    if activation not in ACTIVATIONS:
        raise InvalidInputError(
            f"There is no activation {activation!r}. {did_you_mean(activation, ACTIVATIONS)} "
            "Others are made with Activation(name, function)."
        )
    return ACTIVATIONS[activation]


def vanishing(activation: Activation, place: str) -> Activation:
    """The activation, refused unless it maps zero to zero (assumption 3 of the paper)."""
    value = activation.at_zero()
    if value != 0:
        raise InvalidInputError(
            f"The {place} activation {activation.name} has the value {value:g} at zero, so zero weights do not switch "
            "the branch off and the closed form does not hold. Subtract that value, or use shortcut_hessian."
        )
    return activation


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


def require_dense_fits(params: int, like: Tensor, instead: str = _MATRIX_FREE) -> None:
    """Refuse a dense Hessian that would not fit twice (the matrix and one workspace of its size)."""
    needed = 2 * params**2 * like.element_size()
    what = f"A dense Hessian of {params:,} parameters with its workspace"
    require_fits(needed, what, instead, budget_bytes(like.device))
