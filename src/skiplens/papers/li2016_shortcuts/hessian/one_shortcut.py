"""The Hessian at zero of networks with one matrix per unit: block Toeplitz, full, growing with depth.

Eigenvalues are counted in closed form for any depth. The matrix has R × R blocks: B on the diagonal, A below, Aᵀ above.
Let C = A − B with symmetric part C_s and skew part C_k, and M = C + σ for a level σ. Differences of neighbouring block
rows and columns are a congruence that turns H − σ into a block-tridiagonal matrix: −(M + Mᵀ) on the diagonal, M below,
Mᵀ above, and B − σ in the last corner. By Sylvester's law it has as many negative eigenvalues as H has below σ. Its
R − 1 equal rows split, again by congruence, along the eigenvectors x of Q = (C_s + σ)⁻¹ C_k:

* q = i k with sign ε of xᴴ(C_s + σ)x: a scalar Toeplitz matrix with eigenvalues −2ε + 2 √(1 + k²) cos(π j / R), of
  which R − 1 − ⌊Rφ/π⌋ (ε > 0) or ⌊Rφ/π⌋ (ε < 0) are negative, φ = arctan k;
* q off the imaginary axis: pairs on which the form is neutral, half of it negative.

What remains is the Schur complement of the corner, (A + Aᵀ)/2 − (C_s + σ) g(Q) with g(q) = q coth(R artanh q).
"""

import math
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import torch
from torch import Tensor

from skiplens.base import DidNotConverge, Float
from skiplens.papers.li2016_shortcuts.hessian.activations import BranchActivations, Samples, vanishing
from skiplens.papers.li2016_shortcuts.hessian.spectrum import CountedSpectrum

_ASYMMETRY = 1e-6  # of the Schur complement, which is symmetric: what rounding may do to it before it is not believed
_ON_AXIS = 1e-7  # real part of an imaginary eigenvalue, relative: a colliding pair moves by the root of the rounding


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
        return ToeplitzSpectrum(self.diagonal.double().cpu(), self.below.double().cpu(), units)


def one_shortcut_blocks(inputs: Samples, targets: Samples, activations: BranchActivations) -> ToeplitzBlocks:
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


@dataclass(frozen=True, eq=False)
class ToeplitzSpectrum(CountedSpectrum):
    """The eigenvalues for a number of units; small matrices, always float64 on the processor."""

    diagonal: Float[Tensor, "entries entries"]  # B, symmetric
    below: Float[Tensor, "entries entries"]  # A
    units: int  # R

    @property
    def size(self) -> int:
        """Number of eigenvalues."""
        return self.units * len(self.diagonal)

    @cached_property
    def bound(self) -> float:
        """A number that every |λ| stays below."""
        norms = torch.linalg.matrix_norm(torch.stack([self.diagonal, self.below]), 2).tolist()
        return 1.001 * (norms[0] + (self.units - 1) * norms[1]) or 1.0

    def count_below(self, level: float) -> int:
        """Number of eigenvalues below `level`; those within rounding of it may be counted either way."""
        symmetric, skew, kernel = self._parts
        for attempt in range(20):
            # Nothing at first, then steps below the level that grow from a rounding of the bound to a billionth of it.
            nudge = 0.0 if attempt == 0 else self.bound * 2.0 ** (attempt - 50)
            try:
                form = symmetric + (level - nudge) * torch.eye(len(symmetric), dtype=symmetric.dtype)
                modes = _modes(form, skew, kernel)
                corner = modes.corner(self.below, self.units)
                return modes.negatives(self.units) + int((torch.linalg.eigvalsh(corner) < 0).sum())
            except (_UnclearError, torch.linalg.LinAlgError):
                continue
        raise DidNotConverge(
            f"The eigenvalues below {level!r} could not be counted: the matrices are degenerate there. "
            "Ask for a level further away, or use the dense matrix."
        )

    @cached_property
    def _parts(self) -> tuple[Tensor, Tensor, Tensor]:
        """C_s, C_k and an orthonormal basis of the kernel of C_k in columns (the matrices that commute with G_0)."""
        C = self.below - self.diagonal
        skew = (C - C.T) / 2
        _, sizes, directions = torch.linalg.svd(skew)
        terms = torch.linalg.matrix_norm(torch.stack([self.below, self.diagonal])).max()  # whose difference C is
        floor = len(C) * torch.finfo(C.dtype).eps * terms
        return (C + C.T) / 2, skew, directions[sizes <= floor].T


class _UnclearError(ArithmeticError):
    """The level lies within rounding of a point where the decomposition changes its form."""


class _Modes(NamedTuple):
    """The eigenvectors of Q and how the symmetric form M_s = C_s + σ acts on them."""

    form: Tensor
    vectors: Tensor
    rates: Tensor  # q, with zero real part where it is imaginary
    imaginary: Tensor
    angles: Tensor  # φ = arctan k of the imaginary ones
    positive: Tensor  # ε > 0, for the imaginary ones
    resting: tuple[int, int]  # numbers of vectors with q = 0 on which the form is positive and negative

    def negatives(self, units: int) -> int:
        """Number of negative eigenvalues of the block-tridiagonal part."""
        turns = torch.floor(units * self.angles / math.pi)
        each = torch.where(self.positive, units - 1 - turns, turns)[self.imaginary].sum()
        neutral_pairs = int((~self.imaginary & (self.rates != 0)).sum()) // 2
        return int(each) + (neutral_pairs + self.resting[0]) * (units - 1)

    def corner(self, below: Tensor, units: int) -> Tensor:
        """The Schur complement (A + Aᵀ)/2 − M_s g(Q)."""
        g_of_Q = torch.linalg.solve(self.vectors, self.vectors * self._corner_function(units), left=False).real
        product = self.form @ g_of_Q
        asymmetry = (product - product.T).abs().max() / product.abs().max().clamp_min(1e-300)
        if not asymmetry <= _ASYMMETRY:
            raise _UnclearError
        return (below + below.T - product - product.T) / 2

    def _corner_function(self, units: int) -> Tensor:
        """g(q) = q coth(R artanh q), even in q; 1/R at zero and k cot(R arctan k) on the imaginary axis."""
        oscillating = self.rates.imag.abs() / torch.tan(units * self.angles)
        growth = torch.atanh(self.rates)
        forward = torch.where(growth.real < 0, -1.0, 1.0)  # g is even: take the root whose exponential decays
        decay = torch.exp(-2 * units * forward * growth)
        outside = forward * self.rates * (1 + decay) / (1 - decay)
        values = torch.where(self.imaginary, oscillating.to(outside.dtype), outside)
        return torch.where(self.rates == 0, torch.full_like(values, 1 / units), values)


def _modes(form: Tensor, skew: Tensor, kernel: Tensor) -> _Modes:
    rates, vectors = torch.linalg.eig(torch.linalg.solve(form, skew))
    still = rates.abs().argsort()[: kernel.shape[1]]
    rates[still] = 0
    vectors[:, still] = kernel.to(vectors.dtype)
    imaginary = (rates.real.abs() <= _ON_AXIS * rates.abs()) & (rates != 0)
    rates = torch.where(imaginary, torch.complex(torch.zeros_like(rates.real), rates.imag), rates)
    energies = (vectors.conj() * (form.to(vectors.dtype) @ vectors)).sum(0).real
    angles = torch.atan(torch.where(imaginary, rates.imag.abs(), 0.0))
    resting = _signature(kernel.T @ form @ kernel)
    # The decomposition must keep the form's signature (Sylvester), or an eigenvalue was put in the wrong class.
    turning = int(torch.where(energies > 0, 1, -1)[imaginary].sum())
    positive, negative = _signature(form)
    if turning + resting[0] - resting[1] != positive - negative:
        raise _UnclearError
    return _Modes(form, vectors, rates, imaginary, angles, energies > 0, resting)


def _signature(form: Tensor) -> tuple[int, int]:
    """The numbers of positive and of negative eigenvalues."""
    eigenvalues = torch.linalg.eigvalsh(form)
    return int((eigenvalues > 0).sum()), int((eigenvalues < 0).sum())
