"""A batch in pieces that fit a budget: all outputs, and the derivative of a loss of them, piece by piece."""

from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_flatten, tree_unflatten

from skiplens.base.memory import budget_bytes, require_least
from skiplens.base.preserve_state import preserve_state
from skiplens.graph.batch import Batch
from skiplens.graph.functional import PureModel, is_batch_coupled, keeps_gradients, saved_tensors
from skiplens.graph.inputs import require_module, samples_of

SAVED, TEMPORARIES = 2, 6  # times what autograd keeps of a sample, and times the largest tensor of it


def pieces_of(model: nn.Module, batch: Batch, memory: int | None, what: str, fixed: int = 0) -> list[Batch]:
    """The batch in pieces of which one forward and backward pass fits in memory beside `fixed` bytes.

    It is one piece where it fits, and where its samples depend on each other: that is refused if `memory` was asked for
    and holds no such pass.
    """
    device = next((parameter.device for parameter in model.parameters()), torch.device("cpu"))
    few = batch.first(2)  # batch norm in training mode refuses a single sample
    with preserve_state(require_module(model)), keeps_gradients(dict(model.named_parameters())), torch.enable_grad():
        moving = few.map_inputs(lambda t: t.detach().requires_grad_().clone() if t.is_floating_point() else t)
        sizes = saved_tensors(lambda: moving.arguments().call(model), list(model.parameters()))
    each = (SAVED * sum(sizes) + TEMPORARIES * max(sizes, default=0)) // few.samples + 1
    room = budget_bytes(device, memory) - fixed
    if memory is None and each * batch.samples <= room:
        return [batch]
    with preserve_state(model):
        alone = not is_cut(model, batch)
    require_least(memory, fixed + each * (batch.samples if alone else 1), what)
    return cut(batch, batch.samples if alone else max(1, min(batch.samples, room // each)))


def cut(batch: Batch, size: int | None) -> list[Batch]:
    """The batch in pieces of at most `size` samples; whole if None."""
    if size is None or size >= batch.samples:
        return [batch]
    return [batch.select(slice(start, start + size)) for start in range(0, batch.samples, size)]


def is_cut(model: nn.Module, batch: Batch) -> bool:
    """Whether a batch may be cut: outputs of samples are the same in smaller ones, and all have the axis of samples."""
    if batch.samples == 1:
        return False
    few = batch.first(3)  # few axes of features have three entries
    with torch.no_grad():
        outputs = tree_flatten(few.arguments().call(model))[0]
    tensors = [entry for entry in outputs if isinstance(entry, Tensor)]  # no loss takes a cache of keys and values
    has_rows = bool(tensors) and all(entry.shape[:1] == (few.samples,) for entry in tensors)
    return has_rows and not is_batch_coupled(PureModel(model, {}, {}), samples_of(batch.first(4).inputs))


def outputs_of(pieces: list[Batch], call: Callable[[Batch], Any]) -> Any:
    """What `call` returns for all samples, without a graph."""
    with torch.no_grad():
        if len(pieces) == 1:
            return call(pieces[0])
        found = [tree_flatten(call(piece)) for piece in pieces]
    columns = zip(*(leaves for leaves, _ in found), strict=True)
    return tree_unflatten([torch.cat(c) if isinstance(c[0], Tensor) else c[0] for c in columns], found[0][1])


Slope = tuple[list[Tensor], list[Tensor]]
"""Outputs of a piece with their graph, and the derivative of the loss of all samples by them."""


def slopes(
    model: nn.Module, pieces: list[Batch], loss: Callable[[Any], Tensor], call: Callable[[Batch], Any]
) -> tuple[Tensor, Iterator[Slope]]:
    """The loss of all outputs, and the slope of each piece, whose outputs `call` makes.

    The loss is taken of all outputs together, so that no way in which it adds up over samples has to be known.
    """
    leaves, form = tree_flatten(outputs_of(pieces, lambda piece: piece.arguments().call(model)))
    moving = [place for place, leaf in enumerate(leaves) if isinstance(leaf, Tensor) and leaf.is_floating_point()]
    with torch.enable_grad():
        for place in moving:
            leaves[place].requires_grad_()
        value = loss(tree_unflatten(leaves, form))
        wanted = [leaves[place] for place in moving]
        found = torch.autograd.grad(value, wanted, allow_unused=True) if value.requires_grad else [None] * len(wanted)

    def each() -> Iterator[Slope]:
        start = 0
        for piece in pieces:
            outputs = tree_flatten(call(piece))[0]
            pairs = [(outputs[place], by) for place, by in zip(moving, found, strict=True) if by is not None]
            pairs = [(output, by[start : start + piece.samples]) for output, by in pairs if output.requires_grad]
            yield [output for output, _ in pairs], [by for _, by in pairs]
            start += piece.samples

    return value.detach(), each()
