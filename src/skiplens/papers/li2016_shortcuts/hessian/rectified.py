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

from skiplens.base.axes import Float
from skiplens.base.memory import fresh_zeros
from skiplens.papers.li2016_shortcuts.hessian.activations import Matrices, Samples, check_network, require_dense_fits

_SAMPLES_AT_ONCE = 256  # maps of 256 samples between 64 matrices of width 10 are 13 MiB, near the cache


class RectifiedHessian(NamedTuple):
    """The two parts of the Hessian and how near the weights are to a kink, where it jumps."""

    gauss_newton: Float[Tensor, "params params"]
    residual: Float[Tensor, "params params"]
    smallest_preactivation: float

    def total(self) -> Float[Tensor, "params params"]:
        """The Hessian."""
        return self.gauss_newton + self.residual


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
        _add_gauss_newton(gauss_newton, passes, len(inputs))
        _add_residual(residual, passes, _between(weights, passes.gates, shortcut), len(inputs))
        smallest = min(smallest, passes.preactivations.abs().min().item())
    for part in (gauss_newton, residual):
        _mirror(part, weights[0].numel())
    return RectifiedHessian(gauss_newton, residual, smallest)


class _Passes(NamedTuple):
    """What each sample meets at each matrix."""

    values: Tensor  # v_k: (matrices, width, samples)
    onward: Tensor  # L_k: (matrices, samples, width, width)
    pulled: Tensor  # u_k: (matrices, width, samples)
    gates: list[Tensor]  # of each unit
    preactivations: Tensor


def _passes(weights: Tensor, inputs: Tensor, targets: Tensor, shortcut: bool) -> _Passes:
    """Forward through the units, then L_k for every matrix and sample from the last unit to the first."""
    h, values, gates, before = inputs, [], [], []
    units = weights.unflatten(0, (-1, 2)).unbind(0)
    for first, second in units:
        before.append(h @ first.T)
        gates.append((before[-1] > 0).to(h.dtype))
        values += [h, before[-1] * gates[-1]]
        h = (h if shortcut else 0) + values[-1] @ second.T
    width = weights.shape[-1]
    here = torch.eye(width, dtype=weights.dtype, device=weights.device).expand(len(inputs), width, width)
    backwards: list[Tensor] = []
    for (first, second), gate in zip(reversed(units), reversed(gates), strict=True):
        gated = (here @ second) * gate[:, None, :]
        backwards += [here, gated]
        here = (here if shortcut else 0) + gated @ first
    onward = torch.stack(backwards[::-1])
    pulled = torch.einsum("kmib,mi->kbm", onward, h - targets)
    return _Passes(torch.stack(values).mT.contiguous(), onward, pulled, gates, torch.stack(before))


def _between(weights: Tensor, gates: list[Tensor], shortcut: bool) -> Iterator[Tensor]:
    """For each matrix k, M_kk' for all earlier k' and every sample, in memory that the next one overwrites."""
    width, samples = weights.shape[-1], len(gates[0])
    eye = torch.eye(width, dtype=weights.dtype, device=weights.device)
    since, hidden = (weights.new_empty(len(weights), samples, width, width) for _ in range(2))
    for unit, ((first, second), gate) in enumerate(zip(weights.unflatten(0, (-1, 2)), gates, strict=True)):
        k = 2 * unit
        yield since[:k]
        torch.matmul(first, since[:k], out=hidden[:k])
        hidden[k] = eye
        hidden[: k + 1].mul_(gate[:, :, None])
        yield hidden[: k + 1]
        moved = second @ hidden[: k + 1]
        since[:k] = since[:k] + moved[:k] if shortcut else moved[:k]
        since[k], since[k + 1] = moved[k], eye


def _add_gauss_newton(part: Tensor, passes: _Passes, total: int) -> None:
    """Add these samples' share to the blocks on and below the diagonal."""
    for k, v in enumerate(passes.values):
        products = (v / total)[:, None, :] * passes.values[: k + 1, None]  # each sample's outer products
        gains = passes.onward[k].mT @ passes.onward[: k + 1]
        _block_row(part, k, len(v), k + 1).add_(_summed(products, gains).permute(1, 3, 0, 2, 4))


def _add_residual(part: Tensor, passes: _Passes, between: Iterator[Tensor], total: int) -> None:
    """Add these samples' share to the blocks below the diagonal."""
    for k, maps in enumerate(between):
        pushes = (passes.pulled[k] / total)[:, None, :] * passes.values[:k, None]
        _block_row(part, k, maps.shape[-1], k).add_(_summed(pushes, maps).permute(3, 1, 0, 2, 4))


def _summed(left: Tensor, right: Tensor) -> Tensor:
    """Σ over samples of left ⊗ right: (blocks, a, b, samples) and (blocks, samples, c, d) to (blocks, a, b, c, d)."""
    product = left.flatten(1, 2) @ right.flatten(2)
    return product.unflatten(2, right.shape[2:]).unflatten(1, left.shape[1:3])


def _block_row(matrix: Tensor, k: int, width: int, blocks: int) -> Tensor:
    """The first `blocks` blocks in the rows of W_k, as a view with axes c, b, k', e, q."""
    entries = width * width
    rows = matrix[k * entries : (k + 1) * entries, : blocks * entries]
    return rows.unflatten(1, (blocks, width, width)).unflatten(0, (width, width))


def _mirror(lower: Tensor, entries: int) -> None:
    """Copy what is below the diagonal above it, block by block, so that both are the same bit for bit."""
    for start in range(0, len(lower), entries):
        rows = slice(start, start + entries)
        lower[:start, rows] = lower[rows, :start].mT
        corner = lower[rows, rows]
        corner.copy_(corner.tril() + corner.tril(-1).mT)
