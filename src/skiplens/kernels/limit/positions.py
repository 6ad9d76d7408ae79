"""Rules of operations that move, window or add up positions: convolutions, pooling, reshaping, embeddings."""

import math
from collections.abc import Container, Iterator
from dataclasses import replace
from functools import partial, reduce
from itertools import accumulate, groupby, pairwise
from operator import add
from typing import Any, NamedTuple

import torch
from torch import Tensor, fx

from skiplens.base.errors import InvalidInputError
from skiplens.base.memory import recycled_empty
from skiplens.graph.network import plain_call
from skiplens.graph.operations import operation
from skiplens.kernels.limit.combine import moved, pieces, sum_of
from skiplens.kernels.limit.rules import RULES, Walk, concatenated, layer, matrix, rule, with_numbers
from skiplens.kernels.limit.signals import (
    Axes,
    Concatenation,
    Data,
    Mixed,
    Moments,
    Signal,
    Unit,
    UnpairedError,
    same_positions,
)

_POOLS = "avg_pool1d avg_pool2d adaptive_avg_pool1d adaptive_avg_pool2d upsample_nearest1d upsample_nearest2d \
upsample_linear1d upsample_bilinear2d upsample_bicubic2d"
_PADS = "pad constant_pad_nd"
_ALONG = "mean sum slice select flip"  # an axis that is named
_SHAPES = "view reshape flatten unflatten unsqueeze squeeze _unsafe_view"
MIXING = {f"aten.{name}" for name in f"{_POOLS} mean sum".split()}
ATTENDING = {f"aten.{name}" for name in "scaled_dot_product_attention matmul bmm einsum".split()}
BATCH_NORMS = {"aten._native_batch_norm_legit_functional", "aten._native_batch_norm_legit"}  # in training mode
PERMUTATIONS = {"aten.permute", "aten.transpose", "aten.t"}
_READS_VARIANCES = {f"aten.{name}" for name in "layer_norm rms_norm group_norm mul div".split()}


def positions_needed(steps: list[fx.Node], at_output: int, wide: Container[fx.Node]) -> dict[fx.Node, tuple[int, int]]:
    """Of each value, which pairs of positions later operations read: 2 for all, 1 for equal positions, 0 for none.

    First of the pairs of inputs, then of an input with itself, of which `at_output` are wanted of the last one. What is
    `wide` reads all.
    """
    found = {steps[-1]: (1, at_output)}
    for node in reversed(steps):
        cross, own = found.setdefault(node, (1, 0))
        kind, ndim = operation(node), getattr(node.meta.get("val"), "ndim", 0)
        second = node.args[1] if kind in ATTENDING else None
        several = isinstance(second, list) or (isinstance(second, fx.Node) and second.meta["val"].ndim > 2)
        if several or node in wide:
            cross, own = 2, 2  # no product with a matrix of parameters
        elif kind in MIXING:
            cross, own = 2, 2 if own else 0
        elif kind in BATCH_NORMS:
            cross, own = 2, 0
        elif kind.removeprefix("aten.") in _SHAPES.split() and ndim == 2:
            source = node.all_input_nodes[0].meta["val"]
            if source.ndim > 2 and source.shape[0] == node.meta["val"].shape[0]:  # flattened for a matrix
                cross, own = 1, min(own, 1)
        elif kind in _READS_VARIANCES or (kind in RULES and RULES[kind].__name__ == "_pointwise"):
            own = max(own, 1)
        for source in node.all_input_nodes:
            before = found.get(source, (1, 0))
            found[source] = max(before[0], cross), max(before[1], own)
    return found


@rule("conv1d conv2d")
def _convolution(  # noqa: PLR0913 - the arguments of torch
    walk: Walk,
    node: fx.Node,
    signal: Any,
    weight: Any,
    bias: Any = None,
    stride: Any = (1,),
    padding: Any = (0,),
    dilation: Any = (1,),
    groups: int = 1,
) -> Signal:
    """Σ(p, q) ↦ σ_w² times its average over the window, σ_w² Σ_k Σ(sp + k, sq + k)/|k|; beyond the edge it is 0."""
    if not isinstance(weight, Tensor) or not isinstance(signal, Signal):
        raise InvalidInputError("it is no convolution of a value with a kernel of parameters")
    inside, size = signal.moments, weight.shape[2:]
    kinds = [{kind for kind, _ in axis} for axis in inside.axes]
    alone = groups == 1 and size.numel() == 1 and {*stride} == {1} and not any(padding)
    if kinds == [{"s"}, {"p"}, {"c"}] and alone:
        return between(walk, node, signal, 1, (weight.flatten(1), bias))
    if kinds[:2] != [{"s"}, {"c"}] or kinds[2:] != [{"p"}] * len(size) or len(inside.grid) != len(size):
        raise InvalidInputError("its input is not (samples, channels, positions …)")
    if groups > 1 and isinstance(signal, Data):
        raise InvalidInputError("it has groups of the inputs' own channels, which are not alike")
    stride, dilation = (list(entry) * (len(size) // len(entry)) for entry in (stride, dilation))
    if isinstance(padding, str):
        ends = [step * (width - 1) if padding == "same" else 0 for width, step in zip(size, dilation, strict=True)]
        before = [total // 2 for total in ends]
    else:
        before = list(padding) * (len(size) // len(padding))
    grid = node.meta["val"].shape[2:]
    windows = [_Window(*entries) for entries in zip(size, stride, before, dilation, grid, strict=True)]
    channels, outputs = weight.shape[1], weight.shape[0]
    walk.enters(node, signal, channels)
    fans = channels * size.numel(), outputs * size.numel()

    axes = ((("s", -1),), (("c", outputs),), *((("p", number),) for number in grid))
    behind = layer(walk, node, fans, weight, bias)

    def through(inside: Moments) -> Moments:
        return replace(behind(inside, lambda block: _summed(block, windows), size.numel()), axes=axes)

    found = walk.drawn(node, 1, signal, through)
    # one channel per group is one weight per entry of the window: a product of Gaussians, of which no sum is taken
    return Mixed(found.moments) if channels == 1 and groups > 1 else found


class _Window(NamedTuple):
    """What a convolution sees along one axis."""

    size: int
    stride: int
    before: int  # positions of padding before the first
    step: int  # between entries of the kernel
    outputs: int

    def shifts(self, width: int) -> Iterator[tuple[slice, slice]]:
        """For each entry of the kernel, the outputs that it reaches inside the `width` and what they read there."""
        for entry in sorted(range(self.size), key=lambda k: abs(k * self.step - self.before)):  # the widest first
            start = entry * self.step - self.before
            first, last = max(0, -(start // self.stride)), min(self.outputs - 1, (width - 1 - start) // self.stride)
            if first <= last:
                read = slice(start + self.stride * first, start + self.stride * last + 1, self.stride)
                yield slice(first, last + 1), read

    def places(self, dims: list[int], shape: torch.Size) -> list[Any]:
        """The shifts as indices of a tensor, along several axes together."""
        every = [slice(None) if dim not in dims else None for dim in range(len(shape))]
        return [[tuple(whole or part for whole in every) for part in pair] for pair in self.shifts(shape[dims[0]])]


def _summed(block: Tensor, windows: list[_Window]) -> Tensor:
    """A new block of sums over windows of both positions together."""
    count = len(windows)
    if block.ndim == 2 + count or count == 1 or block.device.type != "cpu":
        for axis, window in enumerate(windows):
            dims = [axis + 2, axis + 2 + count][: (block.ndim - 2) // count]
            shape = [window.outputs if dim in dims else size for dim, size in enumerate(block.shape)]
            block = _added(block.new_empty(shape), block, window.places(dims, block.shape))
        return block
    # row by row of the first position, so that what is added up stays in the cache of a processor
    rows, columns = windows
    (*lead, width, others), every = block.shape[:4], slice(None)
    out = recycled_empty(block, *lead, rows.outputs, columns.outputs, rows.outputs, columns.outputs)
    slab = recycled_empty(block, *lead, others, rows.outputs, others)
    reads: list[list[Any]] = [[] for _ in range(rows.outputs)]
    for put, read in rows.shifts(width):
        for row, source in zip(range(put.start, put.stop), range(width)[read], strict=True):
            reads[row].append(((..., put, every), (every, every, source, every, read)))
    along = columns.places([2, 4], slab.shape)
    for row, places in enumerate(reads):
        _added(out[:, :, row], _added(slab, block, places), along)
    return out


def _added(out: Tensor, block: Tensor, places: list[Any]) -> Tensor:
    """What is read at each place, added up in `out`; mostly the first is all of it."""
    whole = [part for _, read in places[:1] if (part := block[read]).shape == out.shape]
    out.copy_(whole[0]) if whole else out.zero_()
    for put, read in places[len(whole) :]:
        out[put].add_(block[read])
    return out


@rule(f"{_POOLS} {_PADS} {_ALONG}")
def _position_map(walk: Walk, node: fx.Node, signal: Any, *arguments: Any, **keywords: Any) -> Signal:
    """Any linear map A of positions, read off what the operation does to unit vectors: Σ ↦ A Σ Aᵀ."""
    moments, name = signal.moments, operation(node).removeprefix("aten.")
    kinds = [{kind for kind, _ in axis} for axis in moments.axes]
    named: list[int] = []
    if name in _ALONG.split():
        given = arguments[0] if arguments else keywords.get("dim", 0)
        named = [entry % len(kinds) for entry in (given if isinstance(given, list | tuple) else [given])]
        if name == "slice" and node.meta["val"].shape == node.all_input_nodes[0].meta["val"].shape:
            return signal  # the whole axis, which older exports write out
        if name in ("slice", "select") and kinds[named[0]] == {"c"}:
            return _piece(node, signal, named[0], arguments[1:])
        if not named or not all(kinds[axis] <= {"p"} for axis in named):
            raise InvalidInputError(
                "it reads along an axis that holds samples or coordinates, which has no rule; instead of a norm "
                "written by hand, take torch.nn.LayerNorm or torch.nn.RMSNorm"
            )
    elif kinds[:2] != [{"s"}, {"c"}] or not all(kind == {"p"} for kind in kinds[2:]):
        raise InvalidInputError("its input is not (samples, channels, positions …)")
    if kinds[0] != {"s"}:
        raise InvalidInputError("its input does not begin with the samples")
    images = walk.maps.get(node)
    if images is None:
        basis = _unit_vectors(moments)
        if bool(plain_call(node, (torch.zeros_like(basis), *arguments), keywords).any()):
            raise InvalidInputError("it puts numbers other than 0 at new positions, which has no rule yet")
        images = walk.maps[node] = plain_call(node, (basis, *arguments), keywords)
    if any(kinds[axis] == {"c"} and size != 1 for axis, size in enumerate(images.shape[: len(kinds)]) if not named):
        raise InvalidInputError("it adds coordinates of zeros, which has no rule yet")
    kept = [axis for axis in range(1, len(kinds)) if images.ndim == len(kinds) or axis not in named]
    new = [
        moments.axes[axis] if kinds[axis] != {"p"} else (("p", images.shape[place]),)
        for place, axis in enumerate(kept, 1)
    ]
    axes: Axes = (moments.axes[0], *new)
    rows, needs = images.reshape(len(images), -1).T.to(moments.tangent), walk.needs[node]
    picks = bool(((rows == 0) | (rows == 1)).all() and (rows != 0).sum(dim=1).eq(1).all())  # old positions only
    return moved(signal, lambda inside: _carried(inside, rows, axes, needs), linear=not picks)


def _unit_vectors(moments: Moments) -> Tensor:
    """One value for each position, 1 there and 0 elsewhere, of the shape of the values with one coordinate."""
    sizes = [math.prod(size for kind, size in axis if kind == "p") for axis in moments.axes[1:]]
    return torch.eye(math.prod(moments.grid), dtype=torch.float64).view(-1, *sizes)


@rule("linear mm")
def linear(walk: Walk, node: fx.Node, signal: Any, weight: Any, bias: Any = None) -> Signal:
    """A matrix of parameters, between coordinates or between positions."""
    axes = signal.moments.axes if isinstance(signal, Unit | Mixed | Concatenation) else ((),)
    if {kind for kind, _ in axes[-1]} == {"p"} and isinstance(weight, Tensor):
        rows = weight if operation(node) == "aten.linear" else weight.T
        return between(walk, node, signal, len(axes) - 1, (rows, bias))
    return matrix(walk, node, signal, weight, bias)


def between(walk: Walk, node: fx.Node, signal: Any, axis: int, layer: tuple[Tensor, Any]) -> Signal:
    """A matrix between positions, the same for all coordinates and taken as it is: Σ ↦ A Σ Aᵀ."""
    (weight, bias), inside, needs = layer, signal.moments, walk.needs[node]
    for block, need in zip(inside.second, (needs[0], needs[1], needs[1]), strict=True):
        if need and (block is None or block.ndim != 2 + 2 * len(inside.grid)):
            raise UnpairedError
    images = torch.tensordot(_unit_vectors(inside), weight.double().cpu(), dims=([axis], [1])).movedim(-1, axis)
    rows = images.reshape(len(images), -1).T.to(inside.tangent)
    axes = (*inside.axes[:axis], (("p", len(weight)),), *inside.axes[axis + 1 :])
    walk.words[node] = f"{weight.shape[1]} → {len(weight)} positions, as it is"
    walk.notes["Matrices between positions are taken as they are and, few beside the others, as not trained."] = None
    found = moved(signal, lambda inside: _carried(inside, rows, axes, needs), linear=True)
    if bias is None:
        return found
    return with_numbers(walk, found, node, add, bias.view(-1, *(1,) * (len(axes) - 1 - axis)))


def _carried(moments: Moments, matrix: Tensor, axes: Axes, needs: tuple[int, int]) -> Moments:
    """The moments after a linear map of the positions."""
    old, grid = moments.grid, tuple(size for axis in axes for kind, size in axis if kind == "p")
    single = bool((matrix != 0).sum(dim=1).le(1).all())
    chosen = matrix.abs().argmax(dim=1)
    weights = matrix.gather(1, chosen[:, None])[:, 0]

    def means(part: Tensor) -> Tensor:
        flat = part.expand(*part.shape[:2], *old).flatten(2) if old else part[..., None]
        return (flat @ matrix.T).view(*part.shape[:2], *grid)

    def blocks(part: Tensor, need: int) -> Any:
        lead = part.shape[:2]
        if part.ndim == 2 + len(old):
            if not single:
                return None
            return (part.reshape(*lead, -1)[..., chosen] * weights).view(*lead, *grid)
        flat = part.reshape(*lead, len(matrix.T), len(matrix.T))
        flat = flat[..., chosen, :][..., chosen] * weights[:, None] * weights if single else matrix @ flat @ matrix.T
        found = flat.view(*lead, *grid, *grid)
        return found if need == 2 else same_positions(found, 2, len(grid)).contiguous()

    second = [
        blocks(part, need)
        for part, need in zip(moments.second, (needs[0], needs[1], needs[1]), strict=True)
        if part is not None
    ]
    second += [None] * (3 - len(second))
    if second[0] is None:
        raise InvalidInputError("it adds up positions that were flattened before, which has no rule yet")
    mean = tuple(
        means(part) if isinstance(part, Tensor) else part * (matrix.sum(dim=1).view(1, 1, *grid) if part else 1.0)
        for part in moments.mean
    )
    return replace(moments, second=tuple(second), tangent=blocks(moments.tangent, needs[0]), mean=mean, axes=axes)


def _piece(node: fx.Node, signal: Signal, axis: int, arguments: tuple[Any, ...]) -> Signal:
    """Some of the coordinates."""
    size = math.prod(number for _, number in signal.moments.axes[axis])
    if operation(node) == "aten.select":
        start = arguments[0] % size
        return pieces(signal, axis, (start, start + 1, size), kept=False)
    start, stop, _ = slice(*arguments[:2]).indices(size)
    return pieces(signal, axis, (start, stop, size))


@rule("unbind")
def _unbound(walk: Walk, node: fx.Node, signal: Any, dim: int = 0) -> Any:
    return _split(walk, node, signal, 1, dim, kept=False)


@rule("split chunk split_with_sizes")
def _split(walk: Walk, node: fx.Node, signal: Any, sizes: Any, dim: int = 0, kept: bool = True) -> Any:
    """Coordinates that stand beside each other on an axis."""
    axis = dim % len(signal.moments.axes)
    if {kind for kind, _ in signal.moments.axes[axis]} != {"c"}:
        raise InvalidInputError("it splits something else than coordinates, which has no rule yet")
    stops = [0, *accumulate(value.shape[dim] if kept else 1 for value in node.meta["val"])]
    return tuple(pieces(signal, axis, (start, stop, stops[-1]), kept) for start, stop in pairwise(stops))


@rule("cat")
def _joined(walk: Walk, node: fx.Node, signals: list[Any], dim: int = 0) -> Signal:
    """Coordinates beside each other; positions as a sum of values that are 0 at the positions of the others."""
    like, value = next(signal.moments for signal in signals if isinstance(signal, Signal)), node.meta["val"]
    axis = dim % value.ndim
    if (kinds := {kind for kind, _ in like.axes[axis]}) <= {"c"} and kinds:
        return concatenated(node, signals, axis)
    rest = [number for number, parts in enumerate(like.axes) if number not in (0, axis) and parts]
    if "s" in kinds or any({kind for kind, _ in like.axes[number]} != {"c"} for number in rest):
        raise InvalidInputError("it joins neither features nor one axis of positions, which has no rule yet")
    axes = (*like.axes[:axis], (("p", value.shape[axis]),), *like.axes[axis + 1 :])
    parts: Any = node.args[0]
    places = torch.eye(value.shape[axis]).double().split([part.meta["val"].shape[axis] for part in parts])
    total, found = torch.zeros(()), []
    for rows, signal in zip(places, signals, strict=True):
        if isinstance(signal, Signal):
            carried = partial(_carried, matrix=rows.T, axes=axes, needs=walk.needs[node])
            found.append(moved(signal, carried, linear=True))
        elif bool((signal == signal[:1]).all()):
            total = total + torch.tensordot(signal[:1].double(), rows, dims=([axis], [0])).movedim(-1, axis)
        else:
            raise InvalidInputError("it joins positions with numbers that differ between samples")
    both = reduce(sum_of, found)
    return with_numbers(walk, both, node, add, total) if total.ndim else both


def axes_behind(node: fx.Node) -> list[int]:
    """Which axis of its input stands at each place behind a permutation."""
    order = list(range(node.meta["val"].ndim))
    if operation(node) == "aten.permute":
        return [int(entry) % len(order) for entry in node.args[1]]  # type: ignore[union-attr, arg-type]
    one, other = (int(entry) % len(order) for entry in (node.args[1:] or (0, 1)))  # type: ignore[arg-type]
    order[one], order[other] = other, one
    return order


@rule("permute transpose t")
def _permuted(walk: Walk, node: fx.Node, signal: Any, *_: Any) -> Signal:
    order = axes_behind(node)
    return moved(signal, lambda inside: reordered(inside, order))


def reordered(moments: Moments, order: list[int]) -> Moments:
    """The moments with their axes in another order."""
    numbered = iter(range(len(moments.grid)))
    labels = [[next(numbered) for kind, _ in axis if kind == "p"] for axis in moments.axes]
    places, count = [label for axis in order for label in labels[axis]], len(moments.grid)
    axes = tuple(moments.axes[axis] for axis in order)

    def permuted(part: Tensor) -> Tensor:
        second = [2 + count + place for place in places] if part.ndim == 2 + 2 * count else []
        return part.permute(0, 1, *(2 + place for place in places), *second)

    return moments.mapped(permuted, permuted, axes)


@rule(f"{_SHAPES} clone contiguous alias _to_copy to type_as")
def _reshaped(walk: Walk, node: fx.Node, signal: Any, *_: Any, **__: Any) -> Signal:
    """The same numbers with other axes: each is made of parts, which are regrouped in their order."""
    samples = len(walk.network.inputs.leaves()[0])
    shape = list(node.meta["val"].shape)
    if node.all_input_nodes[0].meta["val"].shape == node.meta["val"].shape:
        return signal  # the same object, of which others may be functions
    return moved(signal, lambda inside: _regrouped(inside, shape, samples))


def _regrouped(moments: Moments, shape: list[int], samples: int) -> Moments:
    known = [part for axis in moments.axes for part in axis if part[0] == "s" or part[1] != 1]
    waiting, axes = [(kind, samples if kind == "s" else size) for kind, size in known], []
    for size in shape:
        axis, total = [], 1
        while total < size and waiting:
            kind, number = waiting.pop(0)
            if size % (total * number):  # only a share of this part belongs to the axis
                share = size // total
                if kind == "s" or number % share:
                    raise InvalidInputError(f"it changes the shape to {tuple(shape)}, which has no rule")
                waiting.insert(0, (kind, number // share))
                number = share
            axis.append((kind, number))
            total *= number
        if samples == 1 and waiting and waiting[0][0] == "s" and size == 1:
            axis.append(waiting.pop(0))
        merged = groupby(axis, key=lambda part: part[0])  # parts of one kind beside each other are one
        axes.append(tuple((kind, math.prod(size for _, size in parts)) for kind, parts in merged))
    grid = tuple(size for axis in axes for kind, size in axis if kind == "p")
    count = len(moments.grid)

    def means(part: Tensor) -> Tensor:
        return part.expand(*part.shape[:2], *moments.grid).reshape(*part.shape[:2], *grid)

    def blocks(part: Tensor) -> Tensor:
        return part.reshape(*part.shape[:2], *grid, *(grid if part.ndim == 2 + 2 * count else ()))

    return moments.mapped(blocks, means, tuple(axes))


@rule("embedding")
def _embedding(walk: Walk, node: fx.Node, weight: Any, signal: Any, *_: Any, **__: Any) -> Signal:
    """Every word has a vector of its own: σ² for equal words, 0 for different ones."""
    if not isinstance(signal, Data) or not isinstance(weight, Tensor):
        raise InvalidInputError("it looks up something else than the inputs")
    grid, needs = signal.left.shape[1:], walk.needs[node]
    ones = (1,) * len(grid)

    def equal(x: Tensor, y: Tensor, full: bool) -> Tensor:
        rows = x.view(*x.shape[:2], *grid, *(ones if full else ()))
        return (rows == y.view(*y.shape[:2], *(ones if full else ()), *grid)).double()

    x, y = signal.left.unsqueeze(1), signal.right.unsqueeze(0)
    cross = equal(x, y, needs[0] == 2)
    second = cross, equal(x, x, needs[1] == 2), equal(y, y, needs[1] == 2)
    axes = ((("s", -1),), *((("p", size),) for size in grid), (("c", weight.shape[1]),))
    inside = Moments(second, torch.zeros_like(cross), frozenset(), same=signal.same, axes=axes)
    behind = layer(walk, node, (1, weight.shape[1]), weight, None)
    return walk.drawn(node, 0, signal, lambda _: behind(inside))


@rule("new_empty")
def _empty(walk: Walk, node: fx.Node, *_: Any, **__: Any) -> Tensor:
    """Room for random numbers, which only reads a shape."""
    return torch.zeros(node.meta["val"].shape, dtype=torch.float64)
