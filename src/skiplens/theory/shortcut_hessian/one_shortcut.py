"""The Hessian at zero of networks with one matrix per unit: block Toeplitz, full, growing with depth."""

from typing import NamedTuple

import torch

from skiplens.core.axes import Float, Tensor
from skiplens.theory.shortcut_hessian.activations import BranchActivations, vanishing
from skiplens.theory.shortcut_hessian.counted import CountedSpectrum
from skiplens.theory.shortcut_hessian.toeplitz_count import ToeplitzCount


class ToeplitzBlocks(NamedTuple):
    """The block on the diagonal (B) and the one below it (A); above the diagonal stands Aᵀ."""

    diagonal: Float[Tensor, "entries entries"]
    below: Float[Tensor, "entries entries"]

    def dense(self, units: int) -> Float[Tensor, "params params"]:
        """The whole matrix of `units` × `units` blocks."""
        B, A = self
        place = torch.arange(units, device=A.device)
        row, column = place[:, None, None, None], place[None, None, :, None]
        blocks = torch.where(row == column, B[:, None], torch.where(row > column, A[:, None], A.T[:, None]))
        return blocks.reshape(units * len(A), units * len(A))

    def spectrum(self, units: int) -> CountedSpectrum:
        """All eigenvalues for `units` units, counted in closed form: no matrix is larger than one block."""
        return CountedSpectrum(self._counts(units))

    def limiting_share_below(self, level: float) -> float:
        """The share of eigenvalues below `level` as depth grows without bound."""
        return self._counts(1).limiting_share(level)

    def _counts(self, units: int) -> ToeplitzCount:
        return ToeplitzCount(self.diagonal.double().cpu(), self.below.double().cpu(), units)


def one_shortcut_blocks(
    inputs: Float[Tensor, "samples width"],
    targets: Float[Tensor, "samples width"],
    activations: BranchActivations,
) -> ToeplitzBlocks:
    """The blocks B and A at zero weights for any pre and post activation.

    With p = σ_pre(x), E = x − y, slope s1 and curvature s2 of σ_post at zero, for rows (j, i) and columns (k, h):
    B = [i = h] (s1² S_pp + s2 ⟨E_i p_j p_k⟩), A = s1² ([i = h] S_pp + [j = h] ⟨E_i σ_pre'(x_j) p_k⟩).
    """
    pre, _, post = activations.resolved()
    s1, s2 = vanishing(post, "post").slope(), post.curvature()
    m, d = inputs.shape
    E, p, pre_slope = inputs - targets, pre(inputs), pre.derivative(inputs)
    eye = torch.eye(d, dtype=inputs.dtype, device=inputs.device)
    S_pp = s1**2 * torch.einsum("mj,mk,ih->jikh", p / m, p, eye)
    B = S_pp + s2 * torch.einsum("mi,mj,mk,ih->jikh", E / m, p, p, eye) if s2 else S_pp
    A = S_pp + s1**2 * torch.einsum("mi,mj,mk,jh->jikh", E / m, pre_slope, p, eye)
    return ToeplitzBlocks(B.reshape(d * d, d * d), A.reshape(d * d, d * d))
