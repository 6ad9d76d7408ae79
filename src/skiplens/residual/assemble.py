"""Blocks in words: joins found as numbers of nodes become named, frozen blocks."""

from torch import fx

from skiplens.residual.block import Addition, Branch, DenseJoin, ResidualBlock, Shortcut
from skiplens.residual.concatenations import KeptPiece
from skiplens.residual.export import module_calls, module_of
from skiplens.residual.flow import DataFlow, Nodes, members, union
from skiplens.residual.joins import Join
from skiplens.residual.naming import Surroundings, common_calls, unique_names
from skiplens.residual.operations import SIDES
from skiplens.residual.sums import Step


def residual_blocks(flow: DataFlow, joins: list[Join]) -> list[ResidualBlock]:
    """The blocks that `joins` close, named and in the same order."""
    names = unique_names([_surroundings(flow, join.number, join.shortcut, join.branch) for join in joins])
    return [_block(flow, joins, index, name) for index, name in enumerate(names)]


def dense_joins(flow: DataFlow, kept: list[KeptPiece]) -> list[DenseJoin]:
    """The concatenations in words, named and in the same order."""
    ways = [flow.between(one.fork, [one.number]) for one in kept]
    names = unique_names([_surroundings(flow, one.number, 0, way) for one, way in zip(kept, ways, strict=True)])
    return [
        DenseJoin(
            index=index,
            name=name,
            input=flow.nodes[one.fork].name,
            join=flow.nodes[one.number].name,
            pieces=tuple(flow.nodes[piece].name for piece in one.pieces),
            axis=one.axis,
            output_shape=flow.shape(one.number),
        )
        for index, (name, one) in enumerate(zip(names, kept, strict=True))
    ]


def _block(flow: DataFlow, joins: list[Join], index: int, name: str) -> ResidualBlock:
    join = joins[index]
    branch = join.branch | _feeding_inside(flow, join)
    read = flow.parameters_in(branch) | join.branch_parameters(flow)
    owned = read | join.shortcut_parameters(flow)
    return ResidualBlock(
        index=index,
        name=name,
        input=flow.nodes[join.fork].name,
        join=flow.nodes[join.number].name,
        shortcut=Shortcut(
            join.kind,
            flow.names(join.shortcut),
            _listed(flow, join.shortcut_parameters(flow)),
            _modules(flow, join.shortcut),
        ),
        branch=Branch(
            flow.names(branch),
            _listed(flow, read),
            _modules(flow, branch),
            _whole_modules(flow, branch),
            max(flow.depth(branch), join.branch_depth(flow)),
        ),
        additions=tuple(_addition(flow, step) for step in join.steps),
        input_shape=flow.shape(join.fork),
        output_shape=flow.shape(join.number),
        parameters=sum(flow.parameter_sizes[parameter] for parameter in owned),
        parent=_parent(joins, index),
    )


def _feeding_inside(flow: DataFlow, join: Join) -> Nodes:
    """Operations that feed the branch from elsewhere but run inside the block's module: keys of a cross-attention."""
    block = common_calls([module_calls(flow.nodes[number]) for number in (join.number, *members(join.branch))])
    if not "".join(block):
        return 0  # the block's module is the model, and everything runs inside that
    feeding = union(flow.above[number] for number in members(join.branch))
    feeding &= ~flow.below[join.fork] & ~flow.above[join.fork]
    inside = (number for number in members(feeding) if module_calls(flow.nodes[number])[: len(block)] == block)
    return union(1 << number for number in inside)


def _addition(flow: DataFlow, step: Step) -> Addition:
    node = flow.nodes[step.addition]
    positions = SIDES[flow.operation(step.addition)]
    carrying = [place for place in positions[1 - step.side] if isinstance(node.args[place], fx.Node)]
    return Addition(node.name, positions[step.side][0], tuple(carrying))


def _parent(joins: list[Join], index: int) -> int | None:
    """The smallest block that has this join inside its branch or shortcut."""
    number = joins[index].number
    around = [
        other for other, join in enumerate(joins) if other != index and (join.branch | join.shortcut) >> number & 1
    ]
    return min(around, key=lambda other: (joins[other].branch | joins[other].shortcut).bit_count(), default=None)


def _listed(flow: DataFlow, parameters: frozenset[str]) -> tuple[str, ...]:
    """Names in the order in which the model lists its parameters."""
    return tuple(name for name in flow.parameter_sizes if name in parameters)


def _modules(flow: DataFlow, nodes: Nodes) -> tuple[str, ...]:
    running = (_running(flow, number) for number in members(nodes))
    return tuple(dict.fromkeys(names[-1] for names in running if names))


def _whole_modules(flow: DataFlow, nodes: Nodes) -> tuple[str, ...]:
    outside = {name for number in members(flow.live & ~nodes) for name in _running(flow, number)}
    outermost = (
        next((name for name in _running(flow, number) if name not in outside), None) for number in members(nodes)
    )
    return tuple(dict.fromkeys(name for name in outermost if name is not None))


def _running(flow: DataFlow, number: int) -> list[str]:
    """The modules running at a node, outermost first, without the model itself."""
    return [module_of(call) for call in module_calls(flow.nodes[number]) if call]


def _surroundings(flow: DataFlow, join: int, shortcut: Nodes, branch: Nodes) -> Surroundings:
    return Surroundings(
        join=module_calls(flow.nodes[join]),
        sides=tuple(module_calls(flow.nodes[number]) for number in members(shortcut | branch)),
        weighted=tuple(module_calls(flow.nodes[number]) for number in members(branch) if flow.parameters[number]),
        fallback=flow.nodes[join].name,
    )
