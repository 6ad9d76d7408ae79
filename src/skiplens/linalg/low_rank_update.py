"""All eigenvalues of a diagonal matrix plus a symmetric one of low rank, in O(size² · rank) instead of O(size³)."""

import torch
from torch import Tensor

from skiplens.base.axes import Float
from skiplens.base.progress import Progress, silent, track
from skiplens.linalg.secular import refined_squares, rotated, secular_roots

_ROUNDINGS = 8
"""What is smaller than this many roundings of the largest entry is taken for zero, as LAPACK's dlaed2 does."""


def updated_eigenvalues(
    diagonal: Float[Tensor, " size"],
    factors: Float[Tensor, "size rank"],
    core: Float[Tensor, "rank rank"],
    progress: Progress = silent,
) -> Float[Tensor, " size"]:
    """The eigenvalues of diag(diagonal) + factors · core · factorsᵀ (core symmetric), ascending.

    One secular equation for each eigenvalue of the update; its error is a few roundings of the largest eigenvalue for
    each. Only a few rows of the size × size matrices that occur exist at a time.

    Examples:
        >>> ones = torch.ones(3, 1, dtype=torch.float64)
        >>> updated_eigenvalues(torch.zeros(3, dtype=torch.float64), ones, torch.eye(1, dtype=torch.float64)).tolist()
        [0.0, 0.0, 3.0]
    """
    Q, R = torch.linalg.qr(factors)
    strengths, directions = torch.linalg.eigh(R @ core @ R.T)
    scale = diagonal.abs().max() + strengths.abs().max()
    kept = strengths.abs() > torch.finfo(diagonal.dtype).eps * scale
    values, vectors = _sorted(diagonal, Q @ directions[:, kept])
    rhos = strengths[kept].tolist()
    for rho in track(rhos, "adding the coupling of samples", len(rhos), progress):
        values, vectors = _plus(values, vectors, rho)
    return values.sort().values


def _plus(values: Tensor, vectors: Tensor, rho: float) -> tuple[Tensor, Tensor]:
    """Eigenvalues with ρ times the outer product of the first vector added; the others in the eigenvectors' basis."""
    if rho < 0:  # the secular equation wants ρ > 0: turn everything round
        values, vectors = _plus(-values.flip(0), vectors.flip(0), -rho)
        return -values.flip(0), vectors.flip(0)
    tolerance = _ROUNDINGS * torch.finfo(values.dtype).eps * float(values.abs().max() + rho)
    values, vectors = _merge_equal(values, vectors, tolerance)
    vector, others = vectors[:, 0], vectors[:, 1:]
    moving = (rho * vector.abs() > tolerance).nonzero().flatten()
    if not len(moving):
        return values, others
    roots = secular_roots(values[moving], vector[moving].square(), rho)
    values, others = values.clone(), others.clone()
    others[moving] = rotated(roots, refined_squares(roots), vector[moving], others[moving])
    values[moving] = roots.values
    return _sorted(values, others)


def _sorted(values: Tensor, vectors: Tensor) -> tuple[Tensor, Tensor]:
    ordered, order = values.sort()
    return ordered, vectors[order]


def _merge_equal(values: Tensor, vectors: Tensor, tolerance: float) -> tuple[Tensor, Tensor]:
    """Make nearly equal eigenvalues equal and turn their eigenvectors: one of each group meets the first vector.

    Groups are cells of width `tolerance` counted from the start of a run of small gaps. A Householder reflection in
    each group moves its part of the first vector into the first member; the others then keep their eigenvalue.
    """
    near = torch.cat([values.new_zeros(1, dtype=torch.bool), values.diff() <= tolerance])
    if not bool(near.any()):
        return values, vectors
    index = torch.arange(len(values), device=values.device)
    start = torch.where(near, 0, index).cummax(0).values
    cell = ((values - values[start]) / tolerance).floor()
    fresh = (~near) | (cell.diff(prepend=cell[:1] - 1) != 0)
    group = fresh.cumsum(0) - 1
    heads = fresh.nonzero().flatten()
    return values[heads][group], _reflected(vectors, group, heads)


def _reflected(vectors: Tensor, group: Tensor, heads: Tensor) -> Tensor:
    """Each group's rows reflected so that column 0 is zero but in the group's head."""
    first, count = vectors[:, 0], len(heads)
    norms = first.new_zeros(count).index_add_(0, group, first.square()).sqrt()
    mirror = first.clone()
    mirror[heads] += norms.copysign(first[heads])
    lengths = first.new_zeros(count).index_add_(0, group, mirror.square())
    along = vectors.new_zeros(count, vectors.shape[1]).index_add_(0, group, mirror[:, None] * vectors)
    factor = torch.where(lengths > 0, 2 / lengths.clamp_min(torch.finfo(first.dtype).tiny), 0)
    reflected = vectors - mirror[:, None] * (factor[:, None] * along)[group]
    reflected[:, 0] = 0
    reflected[heads, 0] = -norms.copysign(first[heads])
    alone = torch.bincount(group, minlength=count)[group] == 1
    return torch.where(alone[:, None], vectors, reflected)
