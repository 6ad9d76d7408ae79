"""What each parameter costs, read off the probe: how large its gradient is, in which forms it can be kept, and where
in the network it stands.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch

from skiplens.core.axes import Tensor
from skiplens.derivatives.functional import PureModel
from skiplens.derivatives.tangent.calls import Call
from skiplens.derivatives.tangent.cover import Cover, Use, calls_of
from skiplens.derivatives.tangent.rules.rule import OuterShape


@dataclass(frozen=True)
class Work:
    """One parameter's size and cost.

    Attributes:
        rows: Length of its first axis.
        row_size: Numbers a row.
        products: Multiplications that its gradient for one sample and output takes (its forward pass takes as many).
        outer: Sizes of its outer products, or None where it has not that form.
        order: When it is used first, counted in calls.
        deferred: Numbers of a sample's input and of an output's cotangent, where these two suffice; else None.
    """

    rows: int
    row_size: int
    products: int
    outer: OuterShape | None = None
    order: int = 0
    deferred: tuple[int, int] | None = None

    @property
    def size(self) -> int:
        """How many numbers the parameter holds."""
        return self.rows * self.row_size


def plain_work(parameters: Mapping[str, Tensor]) -> dict[str, Work]:
    """Sizes alone, for algorithms that do not know the layers."""
    return {name: Work(*_rows(tensor), products=tensor.numel()) for name, tensor in parameters.items()}


def layer_work(pure: PureModel, cover: Cover) -> tuple[dict[str, Work], int]:
    """The work of all covered parameters, and the bytes of one sample's and output's cotangents; read off the probe."""
    samples = len(cover.recording.outputs)
    all_uses = [use for uses in cover.uses.values() for use in uses]
    calls = calls_of(cover.recording, cover, all_uses)
    with torch.no_grad():
        prepared = {id(use): use.rule.prepare(calls[use.module, use.call], samples) for use in all_uses}
    work = {}
    for name, uses in cover.uses.items():
        shapes = [use.rule.outer_shape(prepared[id(use)]) for use in uses]
        products = sum(s.terms * s.left * s.right if s else pure.parameters[name].numel() for s in shapes)
        order = min(calls[use.module, use.call].order for use in uses)
        deferred = _deferred(calls[uses[0].module, uses[0].call], samples) if _is_deferrable(uses) else None
        work[name] = Work(*_rows(pure.parameters[name]), products, _joint_shape(shapes, uses), order, deferred)
    cotangents = sum(zero.numel() * zero.element_size() for call in calls.values() for zero in call.zeros)
    return work, cotangents // samples


def _is_deferrable(uses: Sequence[Use]) -> bool:
    return len(uses) == 1 and uses[0].rule.deferrable


def _deferred(call: Call, samples: int) -> tuple[int, int] | None:
    """Numbers of a sample's input and cotangent, where the batch axis of both is the samples."""
    if call.input.shape[0] != samples or call.zeros[0].shape[0] != samples:
        return None
    return call.input[0].numel(), call.zeros[0][0].numel()


def _joint_shape(shapes: Sequence[OuterShape | None], uses: Sequence[Use]) -> OuterShape | None:
    """Outer products of all uses together, where all are of one kind: their terms stand in one row."""
    first = shapes[0]
    if first is None or any(shape is None or use.rule != uses[0].rule for shape, use in zip(shapes, uses, strict=True)):
        return None
    return OuterShape(sum(shape.terms for shape in shapes if shape), first.left, first.right)


def _rows(parameter: Tensor) -> tuple[int, int]:
    """Length of the first axis and numbers a row; a scalar is one row."""
    rows = parameter.shape[0] if parameter.ndim else 1
    return rows, parameter.numel() // rows
