"""Where gradients come from: three exact algorithms that fill the same pieces for all samples."""

from abc import ABC, abstractmethod
from collections.abc import Sequence

import torch
from torch.func import jacrev, vmap

from skiplens.core.axes import Float, Tensor
from skiplens.derivatives.functional import PureModel, transformable
from skiplens.derivatives.samples import Samples
from skiplens.derivatives.tangent.buffer import Buffer
from skiplens.derivatives.tangent.gradients import Gradients
from skiplens.derivatives.tangent.pieces import Factor, Piece


class Source(ABC):
    """Abstract: fills pieces of the Jacobian."""

    @abstractmethod
    def fill(self, samples: Samples, pieces: Sequence[Piece], outputs: Sequence[int], buffer: Buffer) -> list[Factor]:
        """The gradients of the given outputs of all samples, piece by piece, in memory from `buffer`."""


class VectorisedRows(Source):
    """`torch.func`: `vmap` over samples of the reverse-mode Jacobian, some samples at a time."""

    def __init__(self, pure: PureModel, chunk: int) -> None:
        self.pure, self.chunk = pure, chunk

    def fill(self, samples: Samples, pieces: Sequence[Piece], outputs: Sequence[int], buffer: Buffer) -> list[Factor]:
        """The gradients of the given outputs of all samples, piece by piece."""
        factors = [empty_gradients(self.pure, piece, (samples.count, len(outputs)), buffer) for piece in pieces]
        chosen = torch.as_tensor(list(outputs), device=self.pure.device)
        values = {piece.parameter: self.pure.parameters[piece.parameter] for piece in pieces}
        for where, chunk in samples.chunks(self.chunk):
            with transformable():
                jacobian = self._jacobian(chunk, values, chosen)
            for factor, piece in zip(factors, pieces, strict=True):
                factor.rows[where] = rows_of(jacobian[piece.parameter], piece, leading=2)
        return list(factors)

    def _jacobian(self, chunk: Samples, values: dict[str, Tensor], chosen: Tensor) -> dict[str, Tensor]:
        def outputs_of_one(parameters: dict[str, Tensor], tensors: dict[str, Tensor]) -> Tensor:
            one = chunk.with_tensors({name: tensor.unsqueeze(0) for name, tensor in tensors.items()}, 1)
            return self.pure({**self.pure.parameters, **parameters}, one)[0, chosen]

        return vmap(jacrev(outputs_of_one), in_dims=(None, 0))(values, chunk.tensors())


class SingleRows(Source):
    """Plain autograd, one backward pass a sample and output: slow, and right for every model.

    Samples are looked at one by one, or all together where each sample's output depends on the whole batch.
    """

    def __init__(self, pure: PureModel, coupled: bool) -> None:
        self.pure, self.coupled = pure, coupled

    def fill(self, samples: Samples, pieces: Sequence[Piece], outputs: Sequence[int], buffer: Buffer) -> list[Factor]:
        """The gradients of the given outputs of all samples, piece by piece."""
        factors = [empty_gradients(self.pure, piece, (samples.count, len(outputs)), buffer) for piece in pieces]
        for factor in factors:
            factor.rows.zero_()
        for where, batch in samples.chunks(samples.count if self.coupled else 1):
            leaves = self.pure.leaves(dict.fromkeys(piece.parameter for piece in pieces))
            with torch.enable_grad():
                values = self.pure({**self.pure.parameters, **leaves}, batch)[:, list(outputs)]
                rows = [row.unbind() for row in values.unbind()]
            for row, row_values in enumerate(rows):
                for column, value in enumerate(row_values):
                    gradients = _gradients(value, leaves)
                    for factor, piece in zip(factors, pieces, strict=True):
                        gradient = gradients[piece.parameter]
                        if gradient is not None:
                            factor.rows[where.start + row, column] = rows_of(gradient, piece, leading=0)
        return list(factors)


def empty_gradients(pure: PureModel, piece: Piece, counts: tuple[int, int], buffer: Buffer) -> Gradients:
    """Room for the gradients of so many samples and outputs, to be filled."""
    size = rows_of(pure.parameters[piece.parameter], piece, leading=0).numel()
    return Gradients(buffer.take(*counts, size))


def rows_of(gradient: Tensor, piece: Piece, leading: int) -> Float[Tensor, "*leading params"]:
    """The rows of the piece, flattened, behind `leading` axes that stay."""
    if gradient.ndim == leading:
        return gradient.unsqueeze(-1)
    index = (*([slice(None)] * leading), piece.rows)
    return gradient[index].flatten(leading)


def _gradients(value: Float[Tensor, ""], leaves: dict[str, Tensor]) -> dict[str, Tensor | None]:
    if not value.requires_grad:
        return dict.fromkeys(leaves)
    gradients = torch.autograd.grad(value, list(leaves.values()), retain_graph=True, allow_unused=True)
    return dict(zip(leaves, gradients, strict=True))
