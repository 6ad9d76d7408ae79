"""Which concatenations keep an activation beside something computed from it, as dense and U-shaped networks do."""

from dataclasses import dataclass

from torch import fx

from skiplens.residual.flow import DataFlow
from skiplens.residual.fork import find_fork


@dataclass(frozen=True)
class KeptPiece:
    """A concatenation in numbers of nodes, and the activation that it keeps."""

    number: int
    fork: int
    pieces: tuple[int, ...]
    axis: int


def find_dense_joins(flow: DataFlow) -> list[KeptPiece]:
    """All dense joins of a graph in execution order.

    One piece must reach the concatenation without parameters of its own, another must read some on its way from the
    same activation. Parallel branches that all compute (Inception), class tokens and rotary embeddings are none.
    """
    found = (_dense_join(flow, number) for number in range(len(flow.nodes)) if flow.operation(number) == "aten.cat")
    return [join for join in found if join is not None]


def _dense_join(flow: DataFlow, number: int) -> KeptPiece | None:
    arguments = flow.nodes[number].args
    listed = arguments[0] if isinstance(arguments[0], list | tuple) else ()
    numbers = [flow.number[piece] for piece in listed if isinstance(piece, fx.Node)]
    pieces = tuple(piece for piece in numbers if flow.is_floating(piece))
    for kept in pieces:
        fork = find_fork(flow, kept, [piece for piece in pieces if piece != kept])
        if fork is None or flow.parameters_in(flow.between(fork, [kept])):
            continue
        if any(flow.parameters_in(flow.between(fork, [piece])) for piece in pieces):
            return KeptPiece(number, fork, pieces, _axis(flow.nodes[number]))
    return None


def _axis(node: fx.Node) -> int:
    axis = node.args[1] if len(node.args) > 1 else node.kwargs.get("dim", 0)
    assert isinstance(axis, int), f"cat takes a whole number as its axis, not {axis!r}"
    return axis
