"""Angles of nearly equal and nearly opposite pairs from the difference of the vectors, not from a rounded cosine."""

import torch
from torch import Tensor

from skiplens.core.axes import Float, Int
from skiplens.kernels.angular import NearLimits
from skiplens.theory.infinite_width.arc_cosine import Correlation, correlation_of_cosine

_ENTRIES_AT_ONCE = 2**20
_MANY_WITH_GRADIENT = 2**26  # differences kept for the backward pass: half a GiB
_MANY = 1 / 64  # a gathered pair costs about as much as 64 pairs of a dense distance


def precise_correlation(
    rows: Float[Tensor, "samples features"], columns: Float[Tensor, "other_samples features"], limits: NearLimits
) -> Correlation:
    """The correlations of all rows with all columns, accurate also where they are within `limits` of ±1."""
    cosine = rows @ columns.T
    below_one, above_minus_one = correlation_of_cosine(cosine)
    with torch.no_grad():
        equal, opposite = near_pairs(cosine, limits)
    below_one = _replaced(below_one, equal, rows, columns)
    above_minus_one = _replaced(above_minus_one, opposite, rows, -columns)
    return Correlation(below_one, above_minus_one)


def near_pairs(cosine: Float[Tensor, "samples other_samples"], limits: NearLimits) -> tuple[Tensor, Tensor]:
    """Row and column numbers, as (pairs, 2), of nearly equal and of nearly opposite pairs."""
    if cosine.numel() == 0:
        none = torch.empty(0, 2, dtype=torch.long, device=cosine.device)
        return none, none
    least, most = (float(bound) for bound in cosine.aminmax())
    equal = (cosine > 1 - limits.equal) if most > 1 - limits.equal else _nothing(cosine)
    opposite = (cosine < limits.opposite - 1) if least < limits.opposite - 1 else _nothing(cosine)
    return equal.nonzero(), opposite.nonzero()


def half_squared_distance(
    rows: Float[Tensor, "samples features"],
    columns: Float[Tensor, "other_samples features"],
    pairs: Int[Tensor, "pairs 2"],
) -> Float[Tensor, " pairs"]:
    """‖x − x′‖²/2 of the `pairs`: 1 − ρ for unit vectors."""
    step = max(1, _ENTRIES_AT_ONCE // rows.shape[1])
    parts = [(rows[part[:, 0]] - columns[part[:, 1]]).square().sum(dim=1) / 2 for part in pairs.split(step)]
    return torch.cat(parts) if parts else rows.new_empty(0)


def _replaced(distances: Tensor, pairs: Tensor, rows: Tensor, columns: Tensor) -> Tensor:
    """`distances` with those of the `pairs` computed from difference vectors."""
    if len(pairs) == 0:
        return distances
    # dense distances have no second derivative, so a gradient by the inputs takes them only if it must
    most = _MANY_WITH_GRADIENT // rows.shape[1] if distances.requires_grad else _MANY * distances.numel()
    if len(pairs) <= most:
        return distances.index_put(tuple(pairs.T), half_squared_distance(rows, columns, pairs))
    exact = torch.cdist(rows, columns, compute_mode="donot_use_mm_for_euclid_dist").square() / 2
    mask = torch.zeros_like(distances, dtype=torch.bool).index_put(
        tuple(pairs.T), torch.ones((), device=rows.device).bool()
    )
    return torch.where(mask, exact, distances)


def _nothing(cosine: Tensor) -> Tensor:
    return torch.zeros(0, 0, dtype=torch.bool, device=cosine.device)
