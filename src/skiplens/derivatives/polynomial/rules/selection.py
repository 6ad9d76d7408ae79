"""Operations that choose numbers: what was chosen stays chosen."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from torch import Tensor, fx

from skiplens.derivatives.polynomial.rules.rule import Fates, OfOne
from skiplens.derivatives.polynomial.stacks import over_entries
from skiplens.derivatives.polynomial.step import Slot, Step


@dataclass(frozen=True)
class MaxPool(OfOne):
    """A max-pooling as the numbers it chose.

    Attributes:
        pool: The pooling that also returns where each number came from.
        axes: How many axes are pooled.
    """

    curves = True
    pool: Callable[..., tuple[Tensor, Tensor]]
    axes: int

    def apply(self, step: Step, with_constants: bool) -> Tensor:
        """Each entry at the places that were chosen."""
        places = self.pool(*step.arguments)[1].flatten(-self.axes)

        def chosen(entry: Tensor) -> Tensor:
            picked = entry.flatten(-self.axes).gather(-1, places)
            return picked.reshape(*picked.shape[:-1], *_first(step.value).shape[-self.axes :])

        return over_entries(chosen, (step.stack,))


@dataclass(frozen=True)
class Extreme(OfOne):
    """``max(x, axis)`` and its like as the numbers they chose.

    Attributes:
        largest: Whether the largest is chosen or the smallest.
    """

    curves = True
    largest: bool = True

    def carried_slots(self, node: fx.Node, fates: Fates) -> tuple[Slot, ...] | None:
        """The first argument, unless the larger of two tensors is asked for."""
        return None if len(node.args) > 1 and isinstance(node.args[1], fx.Node) else super().carried_slots(node, fates)

    def apply(self, step: Step, with_constants: bool) -> Tensor:
        """Each entry at the places that were chosen."""
        x, axes = step.arguments[0], step.argument(1)
        axes = tuple(axes) if isinstance(axes, list | tuple) else (axes,)
        axes = tuple(axis % x.ndim for axis in axes if axis is not None) or tuple(range(x.ndim))
        kept = [axis for axis in range(x.ndim) if axis not in axes]
        shape = _first(step.value).shape

        def together(tensor: Tensor) -> Tensor:
            return tensor.permute(*kept, *axes).flatten(len(kept)) if kept else tensor.permute(*axes).reshape(-1)

        arranged = together(x)
        places = (arranged.argmax(-1) if self.largest else arranged.argmin(-1)).unsqueeze(-1)
        return over_entries(lambda entry: together(entry).gather(-1, places).reshape(shape), (step.stack,))


def _first(value: Any) -> Tensor:
    return value if isinstance(value, Tensor) else value[0]
