"""What a rule is: how one kind of operation acts on stacks of coefficients once its operating point is frozen."""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from torch import fx

from skiplens.derivatives.polynomial.step import Slot, Stacks, Step, at_slot, slots_at

Status = Literal["constant", "gate", "carried"]
"""How a value depends on the signal.

* ``constant``: not at all; where it is added it belongs to paths without branches.
* ``gate``: it does, but through an operation that is no frozen matrix times its argument; it can only multiply.
* ``carried``: it is a sum over paths.
"""


@dataclass(frozen=True)
class Fate:
    """What becomes of a node.

    Attributes:
        status: How its value depends on the signal.
        slots: The arguments whose stacks make its own.
        curved: Nonlinear operations on the longest way from the inputs; of two factors the more curved is the gate.
        blocker: Name of the operation without a frozen form that made it a gate.
    """

    status: Status
    slots: tuple[Slot, ...] = ()
    curved: int = 0
    blocker: str | None = None


CONSTANT = Fate("constant")
Fates = Mapping[fx.Node, Fate]


class Rule(ABC):
    """A frozen operation: a linear map from the stacks of some arguments to the stack of the result."""

    curves: bool = False
    """Whether the operation is nonlinear."""

    is_fresh: bool = False
    """Whether the stack of the result shares memory with nothing but that of an argument that may be overwritten."""

    @abstractmethod
    def carried_slots(self, node: fx.Node, fates: Fates) -> tuple[Slot, ...] | None:
        """The arguments whose stacks the result is made from; None where there is no such form."""

    @abstractmethod
    def apply(self, step: Step, with_constants: bool) -> Stacks:
        """The stack of the result; derivatives leave out the constants."""


def status_at(node: fx.Node, slot: Slot, fates: Fates) -> Status:
    """How the argument at a slot depends on the signal."""
    argument = at_slot(node.args, slot)
    return fates[argument].status if isinstance(argument, fx.Node) else "constant"


def all_slots(node: fx.Node, positions: tuple[int, ...]) -> tuple[Slot, ...]:
    """The slots of several arguments in order."""
    return tuple(slot for position in positions for slot in slots_at(node.args, position))


class OfOne(Rule):
    """A rule for operations that act on their first argument alone; the others are constants."""

    def carried_slots(self, node: fx.Node, fates: Fates) -> tuple[Slot, ...] | None:
        """The first argument."""
        others = [source for source in node.all_input_nodes if source is not node.args[0]]
        moving = any(fates[source].status != "constant" for source in others)
        return None if moving or status_at(node, (0,), fates) != "carried" else ((0,),)
