"""Take a model apart: from a module and its inputs to its residual blocks."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

import torch
from torch import fx, nn

from skiplens.base.arguments import Arguments
from skiplens.base.errors import InvalidInputError, NotExportableError
from skiplens.base.preserve_state import preserve_state
from skiplens.graph.blocks import (
    Addition,
    Branch,
    DenseJoin,
    ResidualBlock,
    Shortcut,
    Surroundings,
    common_calls,
    unique_names,
)
from skiplens.graph.export import ExportedGraph, export
from skiplens.graph.flow import DataFlow, Nodes, find_fork, members, union
from skiplens.graph.functional import main_output, same_up_to_rounding
from skiplens.graph.inputs import require_data, require_module, try_call
from skiplens.graph.joins import Join, Step, find_joins
from skiplens.graph.modules import require_submodule
from skiplens.graph.network import ResidualNetwork
from skiplens.graph.operations import SIDES

CHOSEN_BLOCKS: ContextVar[tuple[str, ...]] = ContextVar("CHOSEN_BLOCKS", default=())
"""Names of the modules in which joins are looked for; everywhere if empty."""


def find_residual_blocks(model: nn.Module, inputs: Any, *, blocks: Sequence[str] = ()) -> list[ResidualBlock]:
    """The residual blocks of `model` in execution order, one for each residual join; empty if it has none.

    Args:
        model: Any module that `torch.export` accepts, in the mode in which it is to be seen; it is not changed.
        inputs: A tensor, a tuple of positional arguments or a dict of keyword arguments of the model.
        blocks: Names of modules, to overrule what is found: joins are looked for in these alone, and in one without a
            join any sum of two things that have an input in common is taken for one.
    """
    with chosen_blocks(blocks):
        return dissect(model, inputs).blocks


@contextmanager
def chosen_blocks(modules: Sequence[str]) -> Iterator[None]:
    """Run a block in which joins are looked for in these modules alone; as before where none is named."""
    if isinstance(modules, str):
        raise InvalidInputError(f"blocks= takes a list of names of modules, not the one string {modules!r}.")
    token = CHOSEN_BLOCKS.set(tuple(modules) or CHOSEN_BLOCKS.get())
    try:
        yield
    finally:
        CHOSEN_BLOCKS.reset(token)


def dissect(model: nn.Module, inputs: Any) -> ResidualNetwork:
    """The model with its functional graph, its residual blocks and its dense joins.

    Args:
        model: Any module that `torch.export` accepts, in the mode in which it is to be seen; it is not changed.
        inputs: A tensor, a tuple of positional arguments or a dict of keyword arguments of the model.
    """
    model, arguments = require_module(model, numbers=False), Arguments.of(inputs)
    require_data(model, arguments)
    exported = _export_untouched(model, arguments)
    flow = DataFlow(exported)
    joins = _chosen_joins(model, flow, CHOSEN_BLOCKS.get()) if CHOSEN_BLOCKS.get() else find_joins(flow)
    names = unique_names([_surroundings(flow, join.number, join.shortcut, join.branch) for join in joins])
    blocks = [_block(flow, joins, index, name) for index, name in enumerate(names)]
    return ResidualNetwork(model, arguments, exported, blocks, dense_joins(flow))


def _chosen_joins(model: nn.Module, flow: DataFlow, modules: Sequence[str]) -> list[Join]:
    found: dict[int, Join] = {}
    for name in modules:
        require_submodule(model, name)
        for candidates in (find_joins(flow), find_joins(flow, every=True)):
            inside = {join.number: join for join in candidates if name in flow.running[join.number]}
            found |= inside
            if inside:
                break
        else:
            raise InvalidInputError(
                f"No sum in the module {name!r} joins two things that have an input in common. "
                "Name the module whose forward pass adds, not that of the branch."
            )
    return [found[number] for number in sorted(found)]


def _export_untouched(model: nn.Module, arguments: Arguments) -> ExportedGraph:
    """The graph of the model; inputs that the model refuses are told from a model that torch.export refuses.

    The model is called itself only where its export does not show whether that works: it costs as much again.
    """
    copies = Arguments(*arguments.copies())
    try:
        with preserve_state(model, written=False), torch.no_grad():
            exported = export(model, copies)
    except NotExportableError:
        _try_untouched(model, copies)
        raise
    if not exported.outputs or _mixes_types(model, copies) or _looks_up(exported):
        _try_untouched(model, copies)
    return exported


OTHER_BACKWARD = (
    "{model} has a backward pass of its own ({names}) that is not the derivative of what it computes, as in a "
    "straight-through estimate; a graph would show the derivative, which training does not follow."
)


def other_backward(network: ResidualNetwork) -> str:
    """What to tell of a model whose gradients are not the derivatives of what it computes; '' if they are."""
    model, names = network.model, network.exported.functions
    if not names:
        return ""
    try:
        with preserve_state(model), torch.enable_grad():
            for parameter in model.parameters():
                parameter.requires_grad_(parameter.is_floating_point())
            wanted = [parameter for parameter in model.parameters() if parameter.requires_grad]
            outputs = (main_output(network.inputs.call(model)), network.run([network.output])[network.output])
            direction = torch.randn(outputs[0].shape, generator=torch.Generator().manual_seed(0)).to(outputs[0])
            found = [torch.autograd.grad((o * direction).sum(), wanted, allow_unused=True) for o in outputs]
    except (RuntimeError, AssertionError):  # it refuses to be differentiated
        return ""
    pairs = [[torch.zeros_like(p) if g is None else g for g in pair] for p, *pair in zip(wanted, *found, strict=True)]
    same = all(same_up_to_rounding(*pair) for pair in pairs)
    known = same_up_to_rounding(*(output.detach() for output in outputs))  # else it draws at random
    return OTHER_BACKWARD.format(model=type(model).__name__, names=", ".join(names)) if known and not same else ""


def _try_untouched(model: nn.Module, arguments: Arguments) -> None:
    with preserve_state(model), torch.no_grad():
        try_call(model, arguments)


def _mixes_types(model: nn.Module, arguments: Arguments) -> bool:
    """Whether real inputs and parameters differ in their type, or inputs are whole numbers: words of a vocabulary."""
    inputs = [leaf.dtype for leaf in arguments.leaves() if isinstance(leaf, torch.Tensor)]
    return len({*inputs, *(parameter.dtype for parameter in model.parameters())}) > 1


def _looks_up(exported: ExportedGraph) -> bool:
    """Whether numbers that the model does not store tell where others are: positions, which may be too many."""
    stored = set(exported.buffers) | set(exported.constants)
    for node in exported.graph.nodes:
        read = {source.name: source.meta.get("val") for source in node.all_input_nodes}
        if read and stored.issuperset(read):
            stored.add(node.name)
        tensors = {name: value.dtype for name, value in read.items() if isinstance(value, torch.Tensor)}
        places = {name for name, kind in tensors.items() if not kind.is_floating_point and kind is not torch.bool}
        if not places <= stored and any(kind.is_floating_point for kind in tensors.values()):
            return True
    return False


def dense_joins(flow: DataFlow) -> list[DenseJoin]:
    """All dense joins of a graph, named, in execution order.

    One piece must reach the concatenation without parameters of its own, another must read some on its way from the
    same activation. Parallel branches that all compute (Inception), class tokens and rotary embeddings are none.
    """
    concatenations = [number for number in range(len(flow.nodes)) if flow.operation(number) == "aten.cat"]
    pieces = {number: _floating_pieces(flow, number) for number in concatenations}
    forks = {number: fork for number in concatenations if (fork := _fork_of_pieces(flow, pieces[number])) is not None}
    ways = [_surroundings(flow, number, 0, flow.between(fork, [number])) for number, fork in forks.items()]
    found = []
    for index, (name, (number, fork)) in enumerate(zip(unique_names(ways), forks.items(), strict=True)):
        node = flow.nodes[number]
        axis = node.args[1] if len(node.args) > 1 else node.kwargs.get("dim", 0)
        assert isinstance(axis, int), f"cat takes a whole number as its axis, not {axis!r}"
        names = tuple(flow.nodes[piece].name for piece in pieces[number])
        found.append(DenseJoin(index, name, flow.nodes[fork].name, node.name, names, axis, flow.shape(number)))
    return found


def _floating_pieces(flow: DataFlow, number: int) -> tuple[int, ...]:
    listed = flow.nodes[number].args[0]
    pieces = listed if isinstance(listed, list | tuple) else ()
    numbers = [flow.number[piece] for piece in pieces if isinstance(piece, fx.Node)]
    return tuple(piece for piece in numbers if flow.is_floating(piece))


def _fork_of_pieces(flow: DataFlow, pieces: tuple[int, ...]) -> int | None:
    """The activation that one piece keeps and another computes with parameters."""
    for kept in pieces:
        fork = find_fork(flow, kept, [piece for piece in pieces if piece != kept])
        if fork is None or flow.parameters_in(flow.between(fork, [kept])):
            continue
        if any(flow.parameters_in(flow.between(fork, [piece])) for piece in pieces):
            return fork
    return None


def _block(flow: DataFlow, joins: list[Join], index: int, name: str) -> ResidualBlock:
    join = joins[index]
    branch = join.branch | _feeding_inside(flow, join)
    in_shortcut = join.shortcut_parameters(flow)
    in_branch = flow.parameters_in(branch) | join.branch_parameters(flow)
    carried = _listed(flow, in_shortcut), _modules(flow, join.shortcut)
    learned = _listed(flow, in_branch), _modules(flow, branch), _whole_modules(flow, branch)
    return ResidualBlock(
        index=index,
        name=name,
        input=flow.nodes[join.fork].name,
        join=flow.nodes[join.number].name,
        shortcut=Shortcut(join.kind, flow.names(join.shortcut), *carried),
        branch=Branch(flow.names(branch), *learned, max(flow.depth(branch), join.branch_depth(flow))),
        additions=tuple(_addition(flow, step) for step in join.steps),
        input_shape=flow.shape(join.fork),
        output_shape=flow.shape(join.number),
        parameters=sum(flow.parameter_sizes[parameter] for parameter in in_branch | in_shortcut),
        parent=_parent(flow, joins, index),
    )


def _feeding_inside(flow: DataFlow, join: Join) -> Nodes:
    """Operations that feed the branch from elsewhere but run inside the block's module: keys of a cross-attention."""
    block = common_calls([flow.calls[number] for number in (join.number, *members(join.branch))])
    if not "".join(block):
        return 0  # the block's module is the model, and everything runs inside that
    feeding = union(flow.above[number] for number in members(join.branch))
    feeding &= ~flow.below[join.fork] & ~flow.above[join.fork]
    inside = (number for number in members(feeding) if flow.calls[number][: len(block)] == block)
    return union(1 << number for number in inside)


def _addition(flow: DataFlow, step: Step) -> Addition:
    node = flow.nodes[step.addition]
    positions = SIDES[flow.operation(step.addition)]
    carrying = [place for place in positions[1 - step.side] if isinstance(node.args[place], fx.Node)]
    return Addition(node.name, positions[step.side][0], tuple(carrying))


def _parent(flow: DataFlow, joins: list[Join], index: int) -> int | None:
    """The smallest block that has this join inside its branch or shortcut, with all that is made of it up to there.

    In a reversible network each stream passes through the branches of the other and goes on: no block is inside.
    """
    number = joins[index].number
    inside = {other: join.branch | join.shortcut for other, join in enumerate(joins) if other != index}
    around = [
        other for other, nodes in inside.items() if nodes >> number & 1 and not _leaks(flow, joins[other], number)
    ]
    return min(around, key=lambda other: inside[other].bit_count(), default=None)


def _leaks(flow: DataFlow, join: Join, number: int) -> bool:
    """Whether something outside a block reads what it makes of the node `number`."""
    within = join.branch | join.shortcut
    block = within | union(1 << step.addition for step in join.steps)
    readers = (flow.number[user] for made in members(within & flow.below[number]) for user in flow.nodes[made].users)
    return any(not block >> reader & 1 for reader in readers if flow.live >> reader & 1 or not flow.above[reader])


def _listed(flow: DataFlow, parameters: frozenset[str]) -> tuple[str, ...]:
    """Names in the order in which the model lists its parameters."""
    return tuple(name for name in flow.parameter_sizes if name in parameters)


def _modules(flow: DataFlow, nodes: Nodes) -> tuple[str, ...]:
    running = (flow.running[number] for number in members(nodes))
    return tuple(dict.fromkeys(names[-1] for names in running if names))


def _whole_modules(flow: DataFlow, nodes: Nodes) -> tuple[str, ...]:
    outside = {name for number in members(flow.live & ~nodes) for name in flow.running[number]}
    inside = ([name for name in flow.running[number] if name not in outside] for number in members(nodes))
    return tuple(dict.fromkeys(names[0] for names in inside if names))


def _surroundings(flow: DataFlow, join: int, shortcut: Nodes, branch: Nodes) -> Surroundings:
    return Surroundings(
        join=flow.calls[join],
        sides=tuple(flow.calls[number] for number in members(shortcut | branch)),
        weighted=tuple(flow.calls[number] for number in members(branch) if flow.parameters[number]),
        fallback=flow.nodes[join].name,
    )
