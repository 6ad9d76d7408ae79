"""Parameters as one long vector: where each stands, and back."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch

from skiplens.core.axes import Float, Tensor
from skiplens.core.errors import InvalidInputError


@dataclass(frozen=True)
class FlatOrder:
    """The order in which parameters follow each other in a vector: by name, each in its row-major order."""

    shapes: dict[str, tuple[int, ...]]

    @property
    def size(self) -> int:
        """Length of the vector."""
        return sum(self.counts)

    @property
    def counts(self) -> list[int]:
        """Entries of each parameter."""
        return [math.prod(shape) for shape in self.shapes.values()]

    def flatten(self, tensors: Mapping[str, Tensor]) -> Float[Tensor, " params"]:
        """The tensors of all parameters joined to one vector; refused if names or shapes differ."""
        wanted, came = self.shapes, {name: tuple(tensor.shape) for name, tensor in tensors.items()}
        wrong = sorted(name for name in {*wanted, *came} if wanted.get(name) != came.get(name))
        if wrong:
            name = wrong[0]
            raise InvalidInputError(
                f"The tensors to join do not match the parameters at {len(wrong)} names, first {name!r}: shape "
                f"{came.get(name, 'missing')} came, {wanted.get(name, 'no such parameter')} was wanted. Hand over one "
                "tensor for each name in `names`, shaped like the parameter."
            )
        return torch.cat([tensors[name].reshape(-1) for name in self.shapes])

    def unflatten(self, vector: Float[Tensor, " params"]) -> dict[str, Tensor]:
        """The parts of a vector by the name of their parameter, each in its shape; they share the vector's memory."""
        if vector.shape != (self.size,):
            raise InvalidInputError(
                f"A tensor of shape {tuple(vector.shape)} came; a vector of {self.size} entries was wanted, "
                "one for each chosen parameter."
            )
        parts = zip(self.shapes.items(), vector.split(self.counts), strict=True)
        return {name: part.reshape(shape) for (name, shape), part in parts}

    def split_columns(self, block: Float[Tensor, "params probes"]) -> list[Tensor]:
        """For each parameter its share of every column, shaped (probes, *shape)."""
        parts = zip(self.shapes.values(), block.split(self.counts), strict=True)
        return [part.T.reshape(part.shape[1], *shape) for shape, part in parts]

    def join_columns(self, parts: Sequence[Tensor], probes: int) -> Float[Tensor, "params probes"]:
        """The opposite of `split_columns`."""
        return torch.cat([part.reshape(probes, -1).T for part in parts])
