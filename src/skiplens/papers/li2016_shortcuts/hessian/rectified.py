"""The exact piecewise Hessian of networks whose units have two matrices and a ReLU between them.

Within a region where no ReLU switches, each sample sees a linear network. With its gates as masks, per sample: v_k the
input of W_k, L_k the map from the output of W_k (before its ReLU) to the network's output, u_k = L_kᵀ(ŷ − y), and
M_kk' the map from the output of W_k' to the input of a later W_k,

    H[(k, c, b), (k', e, q)] = ⟨v_k[c] v_k'[e] (L_kᵀ L_k')[b, q]⟩ + [k > k'] ⟨u_k[b] v_k'[e] M_kk'[c, q]⟩.
"""

from collections.abc import Iterator
from typing import NamedTuple

import torch
from torch import Tensor

from skiplens.base import Float
from skiplens.base.memory import fresh_empty, fresh_zeros
from skiplens.papers.li2016_shortcuts.hessian.activations import Matrices, Samples, check_network, require_dense_fits

_SAMPLES_AT_ONCE = 1024  # their maps from one matrix to the two of a unit, of width 10, are 1.6 MiB: near the cache


class RectifiedHessian(NamedTuple):
    """The two parts of the Hessian and how near the weights are to a kink, where it jumps."""

    gauss_newton: Float[Tensor, "params params"]
    residual: Float[Tensor, "params params"]
    smallest_preactivation: float

    def total(self) -> Float[Tensor, "params params"]:
        """The Hessian."""
        here = fresh_empty(self.residual, *self.residual.shape)
        return torch.add(self.gauss_newton, self.residual, out=here)


def rectified_hessian(weights: Matrices, inputs: Samples, targets: Samples, shortcut: bool = True) -> RectifiedHessian:
    """The exact Hessian of 1/(2m) Σ ‖y − ŷ‖² for units (h +) W_2 relu(W_1 h), in the order of definition 5.

    Args:
        weights: All matrices in order of application, two for each unit.
        inputs: Samples in rows.
        targets: One row per sample.
        shortcut: Whether each unit adds its input.
    """
    check_network(weights, inputs, targets, 2)
    params = weights.numel()
    require_dense_fits(2 * params, weights)  # two matrices and their sum
    gauss_newton, residual = (fresh_zeros(weights, params, params) for _ in range(2))
    smallest = torch.inf
    for x, y in zip(inputs.split(_SAMPLES_AT_ONCE), targets.split(_SAMPLES_AT_ONCE), strict=True):
        passes = _passes(weights, x, y, shortcut)
        for unit in range(len(passes.gates)):
            _add_gauss_newton(gauss_newton, weights, passes, unit, len(inputs))
            _add_residual(residual, weights, passes, unit, len(inputs))
        smallest = min(smallest, passes.preactivations.abs().min().item())
    for part in (gauss_newton, residual):
        _mirror(part, weights[0].numel())
    return RectifiedHessian(gauss_newton, residual, smallest)


class _Passes(NamedTuple):
    """What each sample meets at each matrix; samples are the last axis, so that products run along them."""

    values: Tensor  # v_k: (matrices, width, samples)
    onward: Tensor  # L_k: (matrices, width, width, samples)
    pulled: Tensor  # u_k: (matrices, width, samples)
    gates: list[Tensor]  # of each unit: (width, samples)
    preactivations: Tensor
    shortcut: bool


def _passes(weights: Tensor, inputs: Tensor, targets: Tensor, shortcut: bool) -> _Passes:
    """Forward through the units, then L_k for every matrix and sample from the last unit to the first."""
    h, values, gates, before = inputs.T.contiguous(), [], [], []
    units = weights.unflatten(0, (-1, 2)).unbind(0)
    for first, second in units:
        before.append(first @ h)
        gates.append((before[-1] > 0).to(h.dtype))
        values += [h, before[-1] * gates[-1]]
        h = (h if shortcut else 0) + second @ values[-1]
    here = torch.eye(len(h), dtype=h.dtype, device=h.device)[:, :, None].expand(-1, -1, len(inputs))
    backwards: list[Tensor] = []
    for (first, second), gate in zip(reversed(units), reversed(gates), strict=True):
        gated = (second.T @ here) * gate
        backwards += [here, gated]
        here = (here if shortcut else 0) + first.T @ gated
    onward = torch.stack(backwards[::-1])
    pulled = torch.einsum("kibm,im->kbm", onward, h - targets.T).contiguous()
    return _Passes(torch.stack(values), onward, pulled, gates, torch.stack(before), shortcut)


def _add_gauss_newton(part: Tensor, weights: Tensor, passes: _Passes, unit: int, total: int) -> None:
    """Add these samples' share to the rows of both matrices of a unit, from its own columns to the first ones."""
    k, values = 2 * unit, passes.values
    start = torch.einsum("kibm,iqm->bqkm", passes.onward[k : k + 2], passes.onward[k + 1]).contiguous()
    for column, gains in _columns(start, weights, passes, unit):  # L_kᵀ L_k', since L_k' is a map to the output
        rows = slice(max(k, column), k + 2)
        sums = _summed(values[rows] / total, values[column], gains[:, :, rows.start - k :])
        _block(part, rows, column, weights.shape[-1]).add_(sums.permute(0, 1, 3, 2, 4))


def _add_residual(part: Tensor, weights: Tensor, passes: _Passes, unit: int, total: int) -> None:
    """The same for the blocks below the diagonal, the one between the unit's own matrices first."""

    def add(rows: slice, column: int, maps: Tensor) -> None:
        block = _block(part, rows, column, weights.shape[-1])
        block.add_(_summed(passes.pulled[rows] / total, passes.values[column], maps).permute(0, 3, 1, 2, 4))

    k, gate = 2 * unit, passes.gates[unit]
    add(slice(k + 1, k + 2), k, torch.diag_embed(gate.T, dim1=0, dim2=1)[:, :, None])
    here = torch.eye(len(gate), dtype=gate.dtype, device=gate.device)[:, :, None].expand(-1, -1, gate.shape[1])
    start = torch.stack([here, gate[:, None] * weights[k][:, :, None]], dim=2)
    for column, maps in _columns(start, weights, passes, unit - 1):
        add(slice(k, k + 2), column, maps)


def _columns(maps: Tensor, weights: Tensor, passes: _Passes, unit: int) -> Iterator[tuple[int, Tensor]]:
    """Maps (to, from, matrices, samples) from each matrix up to that unit's, the last first; `maps` begin behind it.

    Going backwards multiplies from the right: one product for all samples, in memory that the next step overwrites.
    """
    flat = maps.flatten(2)
    for j in range(unit, -1, -1):
        yield 2 * j + 1, maps
        hidden = (weights[2 * j + 1].T @ flat).view_as(maps).mul_(passes.gates[j][:, None])
        yield 2 * j, hidden
        back = weights[2 * j].T.expand(len(flat), -1, -1)
        torch.baddbmm(flat, back, hidden.flatten(2), beta=int(passes.shortcut), out=flat)


def _summed(left: Tensor, values: Tensor, maps: Tensor) -> Tensor:
    """Σ over samples of left ⊗ values ⊗ maps, with axes matrix, left, values, and the two of the maps."""
    sums = (left[:, :, None] * values).flatten(1, 2) @ maps.flatten(0, 1).permute(1, 2, 0)
    return sums.unflatten(2, maps.shape[:2]).unflatten(1, (left.shape[1], len(values)))


def _block(matrix: Tensor, rows: slice, column: int, width: int) -> Tensor:
    """The blocks of some matrices' rows and one matrix's columns, as a view with axes matrix, c, b, e, q."""
    entries = width * width
    blocks = matrix[rows.start * entries : rows.stop * entries, column * entries : (column + 1) * entries]
    return blocks.unflatten(1, (width, width)).unflatten(0, (-1, width, width))


def _mirror(lower: Tensor, entries: int) -> None:
    """Copy what is below the diagonal above it, block by block, so that both are the same bit for bit."""
    for start in range(0, len(lower), entries):
        rows = slice(start, start + entries)
        lower[:start, rows] = lower[rows, :start].mT
        corner = lower[rows, rows]
        corner.copy_(corner.tril() + corner.tril(-1).mT)
