"""Inputs as directions and lengths, after one check that says what is wrong with them."""

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from skiplens.base import Float, InvalidInputError, refuse_if

# Between these, squares of all entries that matter neither over- nor underflow
_SAFE_NORMS = {torch.float32: (1e-15, 1e18), torch.float64: (1e-140, 1e150)}


@dataclass(frozen=True, eq=False)
class Directions:
    """The rows of a matrix of inputs, each as a unit vector and a length."""

    unit: Float[Tensor, "samples features"]  # x/‖x‖, or zeros for a zero input
    length: Float[Tensor, " samples"]  # ‖x‖/√d, so that τ = ‖x‖‖x′‖/d is a product of two lengths

    def __len__(self) -> int:
        return len(self.unit)

    def __getitem__(self, rows: slice | Tensor) -> "Directions":
        return Directions(self.unit[rows], self.length[rows])

    def double(self) -> "Directions":
        """The same rows in float64, normalised again, so that float32 rounding leaves no angle between equal rows."""
        unit = self.unit.double()
        norm = torch.linalg.vector_norm(unit, dim=1, keepdim=True)
        return Directions(unit / torch.where(norm > 0, norm, 1.0), self.length.double())


def directions(X: Float[Tensor, "samples features"]) -> Directions:
    """The rows of `X` as directions; no norm over- or underflows, whatever the size of the entries."""
    norm = torch.linalg.vector_norm(X, dim=1, keepdim=True)
    low, high = _SAFE_NORMS[X.dtype]
    if bool(((norm.detach() > low) & (norm.detach() < high)).all()):
        return Directions(X / norm, (norm / math.sqrt(X.shape[1])).squeeze(1))
    # rows of any size, zero included: each is divided by its largest entry first
    largest = X.detach().abs().amax(dim=1, keepdim=True)
    bad = ~torch.isfinite(largest).flatten()
    if bad.any():
        raise InvalidInputError(
            f"{int(bad.sum())} of {len(bad)} inputs hold NaN or infinite values, the first of them is row "
            f"{int(bad.nonzero()[0])}. Remove or impute those rows."
        )
    scaled = X / torch.where(largest > 0, largest, 1.0)
    norm = torch.linalg.vector_norm(scaled, dim=1, keepdim=True)
    unit = scaled / torch.where(norm > 0, norm, 1.0)
    return Directions(unit, (largest * (norm / math.sqrt(X.shape[1]))).squeeze(1))


def directions_of_pair(X: Tensor, Y: Tensor | None) -> tuple[Directions, Directions | None]:
    """Both matrices of inputs as directions, after all checks."""
    require_inputs(X)
    if Y is None:
        return directions(X), None
    require_inputs(Y, "Y")
    if X.shape[1] != Y.shape[1]:
        raise InvalidInputError(
            f"X has {X.shape[1]} features and Y has {Y.shape[1]}. Both must have the same features in the same order."
        )
    refuse_if(X.device != Y.device, f"X is on {X.device} and Y is on {Y.device}. Move one of them: Y.to(X.device).")
    refuse_if(X.dtype != Y.dtype, f"X is {X.dtype} and Y is {Y.dtype}. Convert one of them: Y.to(X.dtype).")
    return directions(X), directions(Y)


def require_inputs(X: object, name: str = "X") -> None:
    """Refuse anything but a (samples, features) tensor of float32 or float64."""
    if not isinstance(X, Tensor):
        raise InvalidInputError(
            f"{name} must be a torch tensor, got {type(X).__name__}. Convert it with torch.as_tensor({name})."
        )
    if X.dtype not in _SAFE_NORMS:
        raise InvalidInputError(
            f"{name} must be float32 or float64, got {str(X.dtype).removeprefix('torch.')}. "
            f"Convert it with {name}.float() or {name}.double()."
        )
    if X.ndim != 2 or X.shape[1] == 0:
        raise InvalidInputError(
            f"{name} must have the shape (samples, features), got {tuple(X.shape)}. "
            f"Flatten images with {name}.flatten(start_dim=1)."
        )
