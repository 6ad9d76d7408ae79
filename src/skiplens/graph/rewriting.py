"""The functional form of an exported graph, written anew operation by operation.

`ExportedProgram.run_decompositions` traces the whole model again for the same graph, which takes longer than the
export. Most models need no more than the rules below; a graph with anything else is left to torch.
"""

import operator
import re
from collections.abc import Callable, Collection
from typing import Any

import torch
from torch import fx
from torch._ops import OpOverload
from torch.export import ExportedProgram
from torch.export.graph_signature import InputKind

aten = torch.ops.aten
_UNCLEAR = getattr(torch.Tag, "maybe_aliasing_or_mutating", None)
_ROWS = torch.contiguous_format


class _NoRuleError(Exception):
    """There is no rule for an operation of the graph."""


def rewritten(program: ExportedProgram, left_to_torch: Collection[Any]) -> fx.Graph | None:
    """The graph of `program` with nothing done in place, each node named as torch would name it.

    New values of buffers come first among what it returns. None where it holds one of the operations `left_to_torch`
    or one without a rule.
    """
    buffers = {spec.arg.name for spec in program.graph_signature.input_specs if spec.kind is InputKind.BUFFER}
    try:
        return _Rewriting(program.graph, buffers, left_to_torch).graph
    except _NoRuleError:
        return None


class _Rewriting:
    """A graph on its way into a new one."""

    def __init__(self, old: fx.Graph, buffers: set[str], left_to_torch: Collection[Any]) -> None:
        self.graph, self.buffers, self.left_to_torch = fx.Graph(), buffers, left_to_torch
        self.values: dict[fx.Node, Any] = {}  # the new node that holds the value of an old one by now
        self.memory: dict[Any, fx.Node] = {}  # of an old node that wrote in place: the one whose memory it wrote to
        self.shared = set[fx.Node]()  # old nodes whose memory has other names, so that a write to it reaches further
        self.mutated = set[fx.Node]()  # buffers
        for node in old.nodes:
            self._take(node)
        self._remove_unused()

    def _take(self, node: fx.Node) -> None:
        target = node.target
        if node.op == "placeholder":
            self.values[node] = self.graph.placeholder(node.name)
            self.values[node].meta = dict(node.meta)
        elif node.op == "output":
            buffers = [new for old, new in self.values.items() if old in self.mutated]
            self.graph.output((*buffers, *self._new(node.args[0])))
        elif target in RULES:
            if node.kwargs and not (RULES[target] is _to and _is_same(node)):  # another device, an order in memory
                raise _NoRuleError
            self._share(node)
            self.values[node] = RULES[target](self, node, *self._new(node.args))
        elif target is operator.getitem or not self._writes(target):
            if _is_view(target) or (target is operator.getitem and node.args[0] in self.shared):
                self._share(node)
            self.values[node] = self.add(node, target, *_placed(target, self._new(node.args), self._new(node.kwargs)))
        else:
            self._write(node)

    def add(self, like: fx.Node, target: Any, args: tuple[Any, ...], options: Any = None, value: Any = None) -> fx.Node:
        """A new node where `like` stood, with its value if no other is given and the name that torch would choose."""
        name = getattr(target, "overloadpacket", target).__name__
        node = self.graph.create_node("call_function", target, args, options, re.sub(r"^__(.+)__$", r"\1", name))
        node.meta = {**like.meta, "val": like.meta.get("val") if value is None else value}
        return node

    def _share(self, node: fx.Node) -> None:
        """Note that a node may be another name of what it reads; of what was written, torch makes that later."""
        if node.target is aten.batch_norm.default:
            return
        if not set(self.memory.values()).isdisjoint(self._owners(node)):
            raise _NoRuleError
        self.shared |= {node, *self._owners(node)}

    def _owners(self, node: fx.Node) -> list[fx.Node]:
        return [self.memory.get(source, source) for source in node.all_input_nodes]

    def _new(self, arguments: Any) -> Any:
        return fx.node.map_arg(arguments, lambda node: self.values[self.memory.get(node, node)])

    def _writes(self, target: Any) -> bool:
        """Whether an operation writes in place; what may do so, or is made of views, has no rule."""
        if not isinstance(target, OpOverload) or target.namespace != "aten" or target in self.left_to_torch:
            raise _NoRuleError
        aliases = any(argument.alias_info for argument in target._schema.arguments)
        if _UNCLEAR is None or _UNCLEAR in target.tags or (aliases and _is_composite(target)):
            raise _NoRuleError
        return target._schema.is_mutable

    def _write(self, node: fx.Node) -> None:
        """A write in place as an operation whose value all later readers get."""
        (owner, *_), target = self._owners(node), _out_of_place(node.target)
        owned = owner.op == "call_function" or owner.name in self.buffers
        types = {source.meta["val"].dtype for source in node.all_input_nodes}
        if not owned or owner in self.shared or len(types) > 1 or target is None or self._writes(target):
            raise _NoRuleError
        self.values[owner] = self.add(node, target, self._new(node.args), self._new(node.kwargs))
        self.memory[node] = owner
        self.mutated |= {owner} if owner.name in self.buffers else set()

    def _remove_unused(self) -> None:
        for node in reversed(self.graph.nodes):
            checks = isinstance(node.target, OpOverload) and not node.target._schema.returns
            if node.op == "call_function" and not node.users and not checks:
                self.graph.erase_node(node)


def _is_composite(target: OpOverload) -> bool:
    return torch._C._dispatch_has_kernel_for_dispatch_key(target.name(), "CompositeImplicitAutograd")


def _is_view(target: Any) -> bool:
    return isinstance(target, OpOverload) and any(argument.alias_info for argument in target._schema.arguments)


def _placed(target: Any, args: tuple[Any, ...], options: Any) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """The arguments with those that have a place in their place, and without defaults at the end, as torch has them."""
    found, options = list(args), dict(options)
    places = [argument for argument in target._schema.arguments if not argument.kwarg_only] if options else []
    found += [options.pop(argument.name, argument.default_value) for argument in places[len(args) :]]
    while places and found and found[-1] == places[len(found) - 1].default_value:
        found.pop()
    return tuple(found), options


def _out_of_place(target: Any) -> OpOverload | None:
    """The operation that returns what this one writes: ``aten.add.Tensor`` for ``aten.add_.Tensor``."""
    name = target._schema.name.removeprefix("aten::")
    return getattr(getattr(aten, name.removesuffix("_"), None), target._overloadname, None) if name[-1] == "_" else None


def _is_same(node: fx.Node) -> bool:
    """Whether the value of a node lies where that of its first argument lies."""
    read, made = node.args[0].meta["val"], node.meta["val"]  # type: ignore[union-attr]  # a tensor by the schema
    return read.untyped_storage()._cdata == made.untyped_storage()._cdata


def _reshape(new: _Rewriting, node: fx.Node, source: fx.Node, shape: list[int]) -> fx.Node:
    before, sizes = source.meta["val"], list(node.meta["val"].shape)
    if _is_same(node):
        return new.add(node, aten.view.default, (source, shape if before.is_contiguous() else sizes))
    copied = new.add(node, aten.clone.default, (source,), {"memory_format": _ROWS}, before.contiguous())
    return new.add(node, aten._unsafe_view.default, (copied, sizes))


def _flatten(new: _Rewriting, node: fx.Node, source: fx.Node, *_: int) -> fx.Node:
    sizes = list(node.meta["val"].shape)
    return source if len(sizes) == source.meta["val"].ndim else _reshape(new, node, source, sizes)


def _contiguous(new: _Rewriting, node: fx.Node, source: fx.Node) -> fx.Node:
    return source if _is_same(node) else new.add(node, aten.clone.default, (source,), {"memory_format": _ROWS})


def _to(new: _Rewriting, node: fx.Node, source: fx.Node, *wanted: Any) -> fx.Node:
    if _is_same(node):
        return source
    if len(wanted) > 2:  # an order in memory
        raise _NoRuleError
    named = {"dtype": node.meta["val"].dtype}
    device = next((entry for entry in wanted if isinstance(entry, torch.device)), None)
    return new.add(node, aten._to_copy.default, (source,), named if device is None else {**named, "device": device})


def _dropout(new: _Rewriting, node: fx.Node, source: fx.Node, rate: float, drops: bool) -> fx.Node:
    if drops and rate:
        raise _NoRuleError
    return source if node.target is aten.dropout_.default else new.add(node, aten.clone.default, (source,))


def _chunk(new: _Rewriting, node: fx.Node, source: fx.Node, *place: int) -> fx.Node:
    axis = place[1] if len(place) > 1 else 0
    size = node.meta["val"][0].shape[axis]
    return new.add(node, aten.split.Tensor, (source, size, axis) if axis else (source, size))


def _batch_norm(new: _Rewriting, node: fx.Node, *arguments: Any) -> fx.Node:
    *read, training, momentum, epsilon, _ = arguments
    if read[3] is None or read[4] is None:
        raise _NoRuleError
    kind, statistic = aten._native_batch_norm_legit_no_training, node.meta["val"].new_empty(0)
    if training:
        kind, statistic = aten._native_batch_norm_legit_functional, read[3].meta["val"]
    settings = (True, momentum, epsilon) if training else (momentum, epsilon)
    values = (node.meta["val"], *([statistic] * (4 if training else 2)))
    normed = new.add(node, kind.default, (*read, *settings), None, values)
    parts = [new.add(node, operator.getitem, (normed, place), None, value) for place, value in enumerate(values)]
    new.values |= zip(node.args[3:5], parts[3:], strict=False)  # type: ignore[arg-type]  # nodes of buffers
    new.mutated |= set(node.args[3:5] if training else ())  # type: ignore[arg-type]  # as above
    return parts[0]


RULES: dict[Any, Callable[..., fx.Node]] = {
    aten.reshape.default: _reshape,
    aten.flatten.using_ints: _flatten,
    aten.contiguous.default: _contiguous,
    **dict.fromkeys((aten.to.dtype, aten.to.device, aten.to.dtype_layout), _to),
    **dict.fromkeys((aten.dropout.default, aten.dropout_.default), _dropout),
    aten.detach_.default: lambda new, node, source: source,
    aten.lift_fresh_copy.default: lambda new, node, source: new.add(node, aten.clone.default, (source,)),
    aten.expand_as.default: lambda new, node, source, like: new.add(
        node, aten.expand.default, (source, list(node.meta["val"].shape))
    ),
    aten.chunk.default: _chunk,
    aten.batch_norm.default: _batch_norm,
}
