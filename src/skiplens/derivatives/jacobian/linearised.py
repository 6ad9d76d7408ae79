"""A function linearised at a point: products with its Jacobian and the Jacobian's transpose, many at a time."""

from collections.abc import Callable, Iterator
from functools import cached_property

import torch

from skiplens.core.axes import Float, Tensor
from skiplens.core.errors import InvalidInputError

Function = Callable[[Tensor], Tensor]

_CHUNK_BYTES = 2**26
"""What the vectors of one batched product may take; larger blocks win nothing on a processor."""


class Linearised:
    """The Jacobian of `function` at `point`, known by its products; inputs and outputs are flattened row first.

    One forward pass is kept. Jᵀu is a backward pass; Jv is the derivative of Jᵀu by u, so everything that has second
    derivatives in torch has it. Make and use it within `transformable()`.
    """

    def __init__(self, function: Function, point: Tensor) -> None:
        """Run the function once."""
        if not point.is_floating_point():
            raise InvalidInputError(f"A Jacobian needs a floating-point input, got {point.dtype}.")
        with torch.enable_grad():
            self._point = point.detach().clone().requires_grad_()
            self._output = function(self._point)
        if not self._output.numel() or not self._point.numel():
            raise InvalidInputError(
                f"A Jacobian from shape {tuple(point.shape)} to shape {tuple(self._output.shape)} has no entries; "
                "look at a part of the network whose input and output are not empty."
            )
        self.input_shape, self.output_shape = tuple(point.shape), tuple(self._output.shape)

    @property
    def rows(self) -> int:
        """Numbers in the output."""
        return self._output.numel()

    @property
    def columns(self) -> int:
        """Numbers in the input."""
        return self._point.numel()

    @property
    def dtype(self) -> torch.dtype:
        """Type of the input."""
        return self._point.dtype

    @property
    def device(self) -> torch.device:
        """Where the input lives."""
        return self._point.device

    def adjoint(self, vectors: Float[Tensor, "vectors rows"]) -> Float[Tensor, "vectors columns"]:
        """Jᵀ times each row of `vectors`."""
        if not self._output.requires_grad:
            return vectors.new_zeros(len(vectors), self.columns)
        return self._batched(self._output, self._point, vectors, self.output_shape)

    def forward(self, vectors: Float[Tensor, "vectors columns"]) -> Float[Tensor, "vectors rows"]:
        """J times each row of `vectors`."""
        cotangent, pulled = self._pullback
        if pulled is None or not pulled.requires_grad:
            return vectors.new_zeros(len(vectors), self.rows)
        return self._batched(pulled, cotangent, vectors, self.input_shape)

    @cached_property
    def _pullback(self) -> tuple[Tensor, Tensor | None]:
        """A variable u and Jᵀu as a function of it."""
        with torch.enable_grad():
            cotangent = torch.zeros_like(self._output).requires_grad_()
            if not self._output.requires_grad:
                return cotangent, None
            (pulled,) = torch.autograd.grad(
                self._output, self._point, cotangent, create_graph=True, retain_graph=True, allow_unused=True
            )
        return cotangent, pulled

    def _batched(self, output: Tensor, of: Tensor, vectors: Tensor, shape: tuple[int, ...]) -> Tensor:
        if not len(vectors):
            return vectors.new_zeros(0, of.numel())
        return torch.cat([self._product(output, of, part.reshape(-1, *shape)) for part in self._parts(vectors)])

    def _parts(self, vectors: Tensor) -> Iterator[Tensor]:
        largest = max(self.rows, self.columns) * vectors.element_size()
        yield from vectors.split(max(1, _CHUNK_BYTES // (8 * largest)))

    def _product(self, output: Tensor, of: Tensor, vectors: Tensor) -> Tensor:
        single = len(vectors) == 1
        (product,) = torch.autograd.grad(
            output,
            of,
            vectors[0] if single else vectors,
            retain_graph=True,
            allow_unused=True,
            is_grads_batched=not single,
        )
        if product is None:
            return vectors.new_zeros(len(vectors), of.numel())
        return product.detach().reshape(len(vectors), -1)
