"""The directions of a slice: eigenvectors of the Hessian, filter-normalised random ones, or given ones."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from skiplens.core.axes import Float, Tensor
from skiplens.core.errors import InvalidInputError
from skiplens.core.nearest import did_you_mean
from skiplens.core.randomness import Randomness
from skiplens.derivatives.hessian import LossOperator
from skiplens.derivatives.hessian.flat import FlatOrder
from skiplens.lenses.curvature.landscape_options import LandscapeOptions
from skiplens.linalg.lanczos import LanczosOptions, extreme_eigenpairs

Directions = str | Sequence[Tensor | Mapping[str, Tensor]]
"""``"eigenvectors"``, ``"extremes"``, ``"random"``, or one or two vectors, each flat or by the names of parameters."""

KINDS = ("eigenvectors", "extremes", "random")


@dataclass(frozen=True)
class DirectionSet:
    """One or two directions as columns, what they are in words, and what is known of the loss along them."""

    vectors: Float[Tensor, "params directions"]
    names: tuple[str, ...]
    slopes: Float[Tensor, " directions"]
    curvatures: Float[Tensor, " directions"]


def require_kind(directions: Directions) -> None:
    """Refuse a word that names no directions."""
    if isinstance(directions, str) and directions not in KINDS:
        raise InvalidInputError(f"directions={directions!r} is unknown. {did_you_mean(directions, KINDS)}")


def eigenvector_directions(operator: LossOperator, kind: str, options: LandscapeOptions) -> DirectionSet:
    """Eigenvectors of the Hessian: of the largest eigenvalues, or (``"extremes"``) of the largest and the smallest."""
    if kind == "extremes" and options.dimensions == 1:
        raise InvalidInputError("directions='extremes' are two eigenvectors; ask for dimensions=2.")
    ends = (1, 1) if kind == "extremes" else (options.dimensions, 0)
    generator = Randomness(options.seed).child("landscape", "lanczos").torch()
    limits = LanczosOptions(tolerance=options.tolerance, max_products=options.max_products)
    found = extreme_eigenpairs(operator, generator, *ends, options=limits)
    vectors, values = _upright(found.vectors.flip(1)), found.values.flip(0)
    names = tuple(f"eigenvector of {value:.4g}" for value in values.tolist())
    return DirectionSet(vectors, names, vectors.T @ operator.gradient, values)


def random_directions(order: FlatOrder, options: LandscapeOptions, like: Tensor) -> DirectionSet:
    """Directions with independent standard normal entries."""
    randomness = Randomness(options.seed).child("landscape", "random")
    generators = [randomness.child(number).torch() for number in range(options.dimensions)]
    columns = [torch.randn(order.size, generator=generator, dtype=torch.float64) for generator in generators]
    names = tuple(f"random direction {number}" for number in range(1, options.dimensions + 1))
    return _without_derivatives(torch.stack(columns, 1).to(like), names)


def given_directions(order: FlatOrder, given: Sequence[Any], like: Tensor) -> DirectionSet:
    """The user's own directions, checked."""
    if isinstance(given, Tensor | Mapping) or not 1 <= len(given) <= 2:
        count = 1 if isinstance(given, Tensor | Mapping) else len(given)
        came = "a single one without its list" if count == 1 else f"{count} of them"
        raise InvalidInputError(f"directions has {came}; give a list of one or two vectors, e.g. directions=[v].")
    columns = [_column(order, direction, number).to(like) for number, direction in enumerate(given, start=1)]
    names = tuple(f"direction {number}" for number in range(1, len(given) + 1))
    return _without_derivatives(torch.stack(columns, 1), names)


def filter_normalised(directions: DirectionSet, order: FlatOrder, weights: Mapping[str, Tensor]) -> DirectionSet:
    """The directions with every filter as long as the model's own, and nothing along biases and scales.

    A filter is what makes one output of a layer: a row of a matrix, the kernel of one output channel. Where a network
    does not change when a filter is scaled (ReLU, batch norm), slices of two models can be compared only so
    (Li, Xu, Taylor, Studer & Goldstein 2018, section 4).
    """
    columns = []
    for vector in directions.vectors.T:
        parts = order.unflatten(vector)
        columns.append(order.flatten({name: _as_long(part, weights[name]) for name, part in parts.items()}))
    changed = torch.stack(columns, 1)
    _require_length(changed, "after filter normalisation; it keeps matrices and convolution kernels only")
    return _without_derivatives(changed, directions.names)


def _as_long(part: Tensor, weight: Tensor) -> Tensor:
    if weight.ndim < 2:
        return torch.zeros_like(part)
    lengths, wanted = part.flatten(1).norm(dim=1), weight.to(part).flatten(1).norm(dim=1)
    factors = torch.where(lengths > 0, wanted / lengths.clamp_min(torch.finfo(part.dtype).tiny), 0.0)
    return part * factors.reshape(-1, *[1] * (part.ndim - 1))


def _column(order: FlatOrder, direction: Any, number: int) -> Tensor:
    if isinstance(direction, Mapping):
        vector = order.flatten(direction)
    elif isinstance(direction, Tensor):
        order.unflatten(direction)  # refuses a wrong length
        vector = direction
    else:
        raise InvalidInputError(
            f"Direction {number} is of type {type(direction).__name__}; give a flat tensor with {order.size} entries, "
            "or a mapping from the names of parameters to tensors."
        )
    if not bool(torch.isfinite(vector).all()):
        raise InvalidInputError(f"Direction {number} has NaN or infinite entries; repair it first.")
    _require_length(vector[:, None], f"in place {number}")
    return vector


def _require_length(vectors: Tensor, where: str) -> None:
    if bool((vectors.norm(dim=0) == 0).any()):
        raise InvalidInputError(f"A direction is zero everywhere {where}; give one that leads somewhere.")


def _upright(vectors: Tensor) -> Tensor:
    """Eigenvectors with the sign that makes their largest entry positive: the search may end with either."""
    largest = vectors.abs().argmax(0, keepdim=True)
    return vectors * vectors.gather(0, largest).sign()


def _without_derivatives(vectors: Tensor, names: tuple[str, ...]) -> DirectionSet:
    unknown = torch.full((vectors.shape[1],), torch.nan)
    return DirectionSet(vectors, names, unknown, unknown)
