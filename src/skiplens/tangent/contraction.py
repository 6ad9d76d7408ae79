"""Products of gradients, added up piece by piece into the kernel."""

import torch
from torch import Tensor

from skiplens.base.axes import Float
from skiplens.base.memory import fresh_zeros
from skiplens.tangent.gradients import Deferred, GradientForm, Gradients, OuterProducts

_SYMMETRIC_BLOCK = 128  # rows of a block of the upper triangle: large enough for full speed, small enough to skip half
_SCRATCH_BYTES = 2**25


class KernelSum:
    """The kernel as it grows: (left samples, right samples), or with an output axis beside each.

    Only the upper triangle is computed where left and right are the same samples.
    """

    def __init__(self, counts: tuple[int, int], outputs: int, symmetric: bool, like: Tensor) -> None:
        """Start at zero; `outputs` have an axis of their own, or are summed over where 0 is given."""
        self.counts, self.outputs, self.symmetric = counts, outputs, symmetric
        self.per_sample = outputs or 1
        self.matrix = fresh_zeros(like, counts[0] * self.per_sample, counts[1] * self.per_sample)

    def add(self, left: GradientForm, right: GradientForm) -> None:
        """Add the products of all left gradients with all right gradients."""
        if isinstance(left, Gradients) and isinstance(right, Gradients):
            self._add_matrix_product(left.rows, right.rows)
        elif isinstance(left, OuterProducts) and isinstance(right, OuterProducts):
            self._add_outer_products(left, right)
        elif isinstance(left, Deferred) and left is right:
            for gradients in left.slices(left.rows_at_once, side=0):
                self.add(gradients, gradients)
        elif isinstance(left, Deferred) and isinstance(right, Deferred):
            rows = min(left.rows_at_once, right.rows_at_once)
            for one, another in zip(left.slices(rows, side=0), right.slices(rows, side=1), strict=True):
                self.add(one, another)

    def result(self) -> Tensor:
        """The kernel, mirrored where only its upper triangle was computed."""
        if self.symmetric:
            for rows in _blocks(self.matrix.shape[0], _SYMMETRIC_BLOCK):
                below = slice(rows.stop, None)
                self.matrix[below, rows] = self.matrix[rows, below].T
                corner = self.matrix[rows, rows]
                self.matrix[rows, rows] = torch.triu(corner) + torch.triu(corner, 1).T
        if not self.outputs:
            return self.matrix
        return self.matrix.reshape(self.counts[0], self.outputs, self.counts[1], self.outputs)

    def _add_matrix_product(
        self, left: Float[Tensor, "samples outputs params"], right: Float[Tensor, "others outputs params"]
    ) -> None:
        # An output is a row of its own where outputs are kept apart; else it lengthens the row of its sample.
        left, right = (g.flatten(0, 1) if self.outputs else g.flatten(1) for g in (left, right))
        if not self.symmetric:
            self.matrix.addmm_(left, right.T)
            return
        for rows in _blocks(len(left), _SYMMETRIC_BLOCK):
            self.matrix[rows, rows.start :].addmm_(left[rows], right[rows.start :].T)

    def _add_outer_products(self, left: OuterProducts, right: OuterProducts) -> None:
        _, K, T, C = left.right.shape
        bytes_per_pair = max(2 * T * T, T * K * C + K * K) * left.right.element_size()
        size = max(1, int((_SCRATCH_BYTES / bytes_per_pair) ** 0.5))
        for rows in _blocks(self.counts[0], size):
            for columns in _blocks(self.counts[1], size):
                if not self.symmetric or columns.start >= rows.start:
                    one = OuterProducts(left.left[rows], left.right[rows])
                    another = OuterProducts(right.left[columns], right.right[columns])
                    down, across = (slice(s.start * self.per_sample, s.stop * self.per_sample) for s in (rows, columns))
                    self.matrix[down, across] += _outer_block(one, another, bool(self.outputs))


def diagonal_of(form: GradientForm) -> Float[Tensor, "samples outputs"]:
    """Each gradient's squared length."""
    if isinstance(form, Gradients):
        return torch.linalg.vector_norm(form.rows, dim=-1).square()
    if isinstance(form, Deferred):
        return torch.stack([diagonal_of(gradients) for gradients in form.slices(form.rows_at_once, side=0)]).sum(0)
    left, right = form.left, form.right
    meet = left @ left.transpose(1, 2) if left.is_floating_point() else left[:, :, None] == left[:, None, :]
    return (meet[:, None] * (right @ right.transpose(2, 3))).sum((2, 3))


def _outer_block(left: OuterProducts, right: OuterProducts, separate: bool) -> Float[Tensor, "rows columns"]:
    """⟨Σ_t a_t ⊗ b_t, Σ_s c_s ⊗ d_s⟩ = Σ_ts ⟨a_t, c_s⟩⟨b_t, d_s⟩ for all pairs of samples, outputs summed or apart."""
    inputs = _meetings(left.left, right.left).to(left.right.dtype)
    if not separate:
        # Outputs lie beside the channels, so that the product over channels also sums over outputs.
        joined = (form.right.transpose(1, 2).flatten(2) for form in (left, right))
        return (inputs * _meetings(*joined)).sum((1, 3))
    (n, K, T, C), m = left.right.shape, len(right.right)
    if T == 1:
        cotangents = left.right.reshape(n * K, C) @ right.right.reshape(m * K, C).T
        return (cotangents.reshape(n, K, m, K) * inputs.reshape(n, 1, m, 1)).reshape(n * K, m * K)
    # First the left cotangents are carried to the right terms, then they meet the right ones: K²TC instead of K²T²C.
    carried = inputs.permute(0, 2, 3, 1).reshape(n, m * T, T) @ left.right.transpose(1, 2).reshape(n, T, K * C)
    carried = carried.reshape(n, m, T, K, C).permute(1, 0, 3, 2, 4).reshape(m, n * K, T * C)
    block = carried @ right.right.reshape(m, K, T * C).transpose(1, 2)
    return block.permute(1, 0, 2).reshape(n * K, m * K)


def _meetings(left: Tensor, right: Tensor) -> Tensor:
    """Inner products of all left terms with all right terms: (samples, terms, samples, terms)."""
    if not left.is_floating_point():
        return left[:, :, None, None] == right[None, None, :, :]
    (n, T, C), (m, S, _) = left.shape, right.shape
    return (left.reshape(n * T, C) @ right.reshape(m * S, C).T).reshape(n, T, m, S)


def _blocks(total: int, size: int) -> list[slice]:
    return [slice(start, min(start + size, total)) for start in range(0, total, size)]
