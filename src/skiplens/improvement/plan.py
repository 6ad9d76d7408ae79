"""A change of a network or of its training as data, and plans of several that are made together."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from torch import nn

from skiplens.edits.remedies import apply_remedy, code_of, one_program
from skiplens.readings.finding import Remedy
from skiplens.trainability.optimizers import OptimizerChoice

SLOTS = ("inputs", "outputs", "activations", "norms", "start", "shortcuts", "branches", "head", "dropout", "training")
"""What a change acts on, in the order in which changes are made; two changes of one slot exclude each other."""


@dataclass(frozen=True)
class Change:
    """One change of a network or of its training."""

    name: str  # what it is called
    slot: str  # what it acts on
    words: str  # what is done, as an order
    reason: str  # what was measured that calls for it
    remedies: tuple[Remedy, ...] = ()  # changes of the model, in order
    training: Callable[[OptimizerChoice], OptimizerChoice] | None = None  # changes the optimizer; None where it stays
    training_code: str = ""  # that as code to paste

    def with_seed(self, seed: int) -> "Change":
        """The same change; what it draws is drawn with another seed."""
        return replace(self, remedies=tuple(remedy.with_seed(seed) for remedy in self.remedies))

    @property
    def code(self) -> str:
        """The change as code to paste, for a model called `model`, its inputs `inputs` and its `optimizer`."""
        return one_program([*map(code_of, self.remedies), self.training_code])


Plan = tuple[Change, ...]
"""Changes that are made together, in the order of their slots."""


def ordered(changes: Sequence[Change]) -> Plan:
    """The changes in the order in which they are made."""
    return tuple(sorted(changes, key=lambda change: SLOTS.index(change.slot)))


def changed(model: nn.Module, plan: Plan, inputs: Any) -> nn.Module:
    """A copy of `model` with all changes of the plan."""
    for change in plan:
        for remedy in change.remedies:
            model = apply_remedy(remedy, model, inputs)
    return model


def trained_with(choice: OptimizerChoice, plan: Plan) -> OptimizerChoice:
    """The optimizer with all changes of the plan."""
    for change in plan:
        choice = choice if change.training is None else change.training(choice)
    return choice


Made = list[Change] | str
"""Changes that a network is offered, or why there is none."""
