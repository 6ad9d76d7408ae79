"""The exact piecewise Hessian of networks whose units have two matrices and a ReLU between them.

Within a region where no ReLU switches, each sample sees a linear network. With its gates as masks, per sample: v_k the
input of W_k, L_k the map from the output of W_k (before its ReLU) to the network's output, u_k = L_kᵀ(ŷ − y), and
M_kk' the map from the output of W_k' to the input of a later W_k,

    H[(k, c, b), (k', e, q)] = ⟨v_k[c] v_k'[e] (L_kᵀ L_k')[b, q]⟩ + [k > k'] ⟨u_k[b] v_k'[e] M_kk'[c, q]⟩.
"""

from typing import NamedTuple

import torch

from skiplens.core.axes import Float, Tensor
from skiplens.core.fresh_memory import fresh_zeros
from skiplens.theory.shortcut_hessian.arguments import check_network, require_dense_fits

_SAMPLES_AT_ONCE = 256  # maps of 256 samples between 64 matrices of width 10 are 13 MiB, near the cache
_INSTEAD = "Use a matrix-free Hessian operator and Lanczos for its extreme eigenvalues and its density."


class RectifiedHessian(NamedTuple):
    """The two parts of the Hessian and how near the weights are to a kink, where it jumps."""

    gauss_newton: Float[Tensor, "params params"]
    residual: Float[Tensor, "params params"]
    smallest_preactivation: float

    def total(self) -> Float[Tensor, "params params"]:
        """The Hessian."""
        return self.gauss_newton + self.residual


def rectified_hessian(
    weights: Float[Tensor, "matrices outputs features"],
    inputs: Float[Tensor, "samples width"],
    targets: Float[Tensor, "samples width"],
    shortcut: bool = True,
) -> RectifiedHessian:
    """The exact Hessian of 1/(2m) Σ ‖y − ŷ‖² for units (h +) W_2 relu(W_1 h), in the order of definition 5.

    Args:
        weights: All matrices in order of application, two for each unit.
        inputs: Samples in rows.
        targets: One row per sample.
        shortcut: Whether each unit adds its input.
    """
    check_network(weights, inputs, targets, 2)
    params = weights.numel()
    require_dense_fits(2 * params, weights, _INSTEAD)  # two matrices and their sum
    gauss_newton, residual = (fresh_zeros(weights, params, params) for _ in range(2))
    smallest = torch.inf
    for x, y in zip(inputs.split(_SAMPLES_AT_ONCE), targets.split(_SAMPLES_AT_ONCE), strict=True):
        passes = _passes(weights, x, y, shortcut)
        _accumulate(gauss_newton, residual, passes, len(inputs))
        smallest = min(smallest, passes.preactivations.abs().min().item())
    for part in (gauss_newton, residual):
        _mirror(part, weights[0].numel())
    return RectifiedHessian(gauss_newton, residual, smallest)


class _Passes(NamedTuple):
    """What each sample meets at each matrix; axes (matrices, samples, …)."""

    values: Tensor  # v_k
    onward: Tensor  # L_k
    pulled: Tensor  # u_k
    between: list[Tensor]  # for each k, M_kk' for all k' < k: (k, samples, width, width)
    preactivations: Tensor


def _passes(weights: Tensor, inputs: Tensor, targets: Tensor, shortcut: bool) -> _Passes:
    h, values, gates, before = inputs, [], [], []
    for first, second in weights.unflatten(0, (-1, 2)):
        before.append(h @ first.T)
        gates.append((before[-1] > 0).to(h.dtype))
        values += [h, before[-1] * gates[-1]]
        h = (h if shortcut else 0) + values[-1] @ second.T
    onward = _onward(weights, gates, shortcut)
    pulled = torch.einsum("kmib,mi->kmb", onward, h - targets)
    return _Passes(torch.stack(values), onward, pulled, _between(weights, gates, shortcut), torch.stack(before))


def _onward(weights: Tensor, gates: list[Tensor], shortcut: bool) -> Tensor:
    """L_k for every matrix and sample, from the last unit to the first."""
    width, samples = weights.shape[-1], len(gates[0])
    eye = torch.eye(width, dtype=weights.dtype, device=weights.device)
    onward, here = [], eye.expand(samples, width, width)
    for (first, second), gate in zip(reversed(weights.unflatten(0, (-1, 2)).unbind(0)), reversed(gates), strict=True):
        gated = (here @ second) * gate[:, None, :]
        onward += [here, gated]
        here = (here if shortcut else 0) + gated @ first
    return torch.stack(onward[::-1])


def _between(weights: Tensor, gates: list[Tensor], shortcut: bool) -> list[Tensor]:
    """M_kk' for every matrix k, all earlier k' and every sample."""
    width, samples = weights.shape[-1], len(gates[0])
    eye = torch.eye(width, dtype=weights.dtype, device=weights.device).expand(1, samples, width, width)
    between, since = [], eye[:0]
    for (first, second), gate in zip(weights.unflatten(0, (-1, 2)), gates, strict=True):
        hidden = torch.cat([gate[:, :, None] * (first @ since), eye * gate[:, :, None]])
        between += [since, hidden]
        kept = torch.cat([since, torch.zeros_like(eye)]) if shortcut else 0
        since = torch.cat([kept + second @ hidden, eye])
    return between


def _accumulate(gauss_newton: Tensor, residual: Tensor, passes: _Passes, total: int) -> None:
    """Add these samples' share to the blocks on and below the diagonal."""
    for k, v in enumerate(passes.values):
        earlier = passes.values[: k + 1] / total
        products = torch.einsum("mc,kme->kmce", v, earlier)
        gains = passes.onward[k].mT @ passes.onward[: k + 1]
        _block_row(gauss_newton, k, v.shape[1], k + 1).add_(_summed(products, gains).permute(1, 3, 0, 2, 4))
        if k:
            pushes = torch.einsum("mb,kme->kmbe", passes.pulled[k], earlier[:k])
            _block_row(residual, k, v.shape[1], k).add_(_summed(passes.between[k], pushes).permute(1, 3, 0, 4, 2))


def _summed(left: Tensor, right: Tensor) -> Tensor:
    """Σ over samples of left ⊗ right: (blocks, samples, a, b) and (blocks, samples, c, d) to (blocks, a, b, c, d)."""
    product = left.flatten(2).mT @ right.flatten(2)
    return product.unflatten(2, right.shape[2:]).unflatten(1, left.shape[2:])


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
