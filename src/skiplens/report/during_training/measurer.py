"""The callback that measures along a run."""

import dataclasses
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from torch import Tensor, nn

from skiplens.base.errors import InvalidInputError
from skiplens.base.preserve_state import preserve_state
from skiplens.readings.reading import KINDS, Provenance, Reading
from skiplens.training.callbacks import Callback, Moment, RunningLoss
from skiplens.training.passes import Snapshot


@dataclass(frozen=True)
class MeasureAlong:
    """What to measure along a run, and when.

    The measurement is a function of the model: it sees the model in evaluation mode, with the gradients of the step's
    batch in `.grad`, and whatever it does to modes, buffers or gradients is put back. It returns a number, a tensor, a
    mapping of names to numbers, or a reading; tensors are copied. Running statistics such as those of batch norm have
    seen the step's batch already.

    A loss is reached between two looks when the first is above it and the second is not; the measurement is taken at
    both, so that `at_losses` can interpolate between them. After the last update there is no loss of a batch: with
    ``loss="step"`` and ``"running"`` the last look is before it.

    Attributes:
        measure: What to measure.
        at_steps: After how many updates to measure; 0 is the start.
        at_losses: Losses at which to measure when they are first reached.
        loss: Which loss is compared with `at_losses`: ``"step"`` is that of the step's own batch, ``"running"`` its
            mean over as many steps as an epoch has, and a function of the model is called at each look.
        every: How many steps lie between two looks at the loss.
        stop_when_done: Whether the run ends, before its recipe does, when everything asked for was measured.
    """

    measure: Callable[[nn.Module], Any]
    at_steps: tuple[int, ...] = ()
    at_losses: tuple[float, ...] = ()
    loss: Literal["step", "running"] | Callable[[nn.Module], float] = "step"
    every: int = 1
    stop_when_done: bool = False

    def __post_init__(self) -> None:
        """Refuse times at which nothing can be measured."""
        if not self.at_steps and not self.at_losses:
            raise InvalidInputError("Say when to measure: at_steps=(0, 100, …) or at_losses=(2.0, 1.0, …).")
        for step in self.at_steps:
            if step != int(step) or step < 0:
                raise InvalidInputError(f"at_steps has {step!r}; steps are whole numbers from 0 on.")
        for loss in self.at_losses:
            if not math.isfinite(loss):
                raise InvalidInputError(f"at_losses has {loss!r}; give finite numbers.")
        if self.every < 1:
            raise InvalidInputError(f"every is {self.every}; look at the loss every 1 step or more.")


class Measurer(Callback):
    """Takes the measurements of a plan while a run trains."""

    def __init__(self, plan: MeasureAlong) -> None:
        self.plan = plan
        self.taken: dict[int, Taken] = {}  # by step
        self.crossings: dict[float, tuple[int, int]] = {}  # by loss, the steps of the looks before and after it
        self._loss = plan.loss if callable(plan.loss) else RunningLoss.named(plan.loss)
        self._last: tuple[int, float, Snapshot] | None = None

    def identity(self) -> str:
        """What is measured and when, in words."""
        plan = self.plan
        name = getattr(plan.measure, "__qualname__", type(plan.measure).__name__)
        loss = plan.loss if isinstance(plan.loss, str) else "function"
        return f"{name} at steps {plan.at_steps}, at losses {plan.at_losses} ({loss}, every {plan.every})"

    def before_step(self, moment: Moment) -> None:
        """Measure where this step is wanted or a wanted loss has just been reached."""
        if isinstance(self._loss, RunningLoss):
            self._loss.note(moment)
        self._visit(moment, at_end=False)
        if self.plan.stop_when_done and not self._pending() and all(step <= moment.step for step in self.plan.at_steps):
            moment.stop("everything was measured")

    def at_end(self, moment: Moment) -> None:
        """Measure the trained model where its step is wanted."""
        if math.isfinite(moment.loss):
            self._visit(moment, at_end=True)

    def state(self) -> dict[str, Any]:
        """All that was measured, and the last look."""
        taken = [[entry.step, entry.loss, packed(entry.value)] for entry in self.taken.values()]
        last = None if self._last is None else [*self._last[:2], vars(self._last[2])]
        running = self._loss.state() if isinstance(self._loss, RunningLoss) else {}
        return {"taken": taken, "crossings": self.crossings, "last": last, "running": running}

    def restore(self, state: dict[str, Any]) -> None:
        """Take up what was measured before."""
        self.taken = {step: Taken(step, loss, unpacked(value)) for step, loss, value in state["taken"]}
        self.crossings = dict(state["crossings"])
        last = state["last"]
        self._last = None if last is None else (last[0], last[1], Snapshot(**last[2]))
        if isinstance(self._loss, RunningLoss):
            self._loss.restore(state["running"])

    def _visit(self, moment: Moment, at_end: bool) -> None:
        step = moment.step
        known = not at_end or not isinstance(self._loss, RunningLoss)
        look = bool(self._pending()) and known and (at_end or step % self.plan.every == 0)
        wanted = step in self.plan.at_steps
        loss = self._loss_now(moment, at_end) if look or wanted else math.nan
        if wanted:
            self._take(step, loss, moment.model)
        if look:
            self._look(step, loss, moment.model)

    def _look(self, step: int, loss: float, model: nn.Module) -> None:
        """Measure at this look and at the one before it where the loss has come from above to a wanted one."""
        if self._last is None:
            before, reached = step, [wanted for wanted in self._pending() if loss == wanted]
        else:
            before, above, snapshot = self._last
            reached = [wanted for wanted in self._pending() if loss <= wanted < above]
            if reached and before not in self.taken:
                with snapshot.held_by(model):
                    self._take(before, above, model)
        if reached:
            self._take(step, loss, model)
            self.crossings.update(dict.fromkeys(reached, (before, step)))
        self._last = (step, loss, Snapshot.of(model)) if self._pending() else None

    def _take(self, step: int, loss: float, model: nn.Module) -> None:
        if step not in self.taken:
            with preserve_state(model):
                model.eval()
                self.taken[step] = Taken(step, loss, settled(self.plan.measure(model)))

    def _pending(self) -> list[float]:
        return [wanted for wanted in self.plan.at_losses if wanted not in self.crossings]

    def _loss_now(self, moment: Moment, at_end: bool) -> float:
        if not isinstance(self._loss, RunningLoss):
            with preserve_state(moment.model):
                return float(self._loss(moment.model))
        return math.nan if at_end else self._loss.value


_MARK = "$reading"


def settled(value: Any) -> Any:
    """The value with copies of its tensors on the CPU: a run goes on to change the weights that they may be."""
    if isinstance(value, Tensor):
        return value.detach().to("cpu", copy=True)
    if isinstance(value, Reading):
        return dataclasses.replace(value, **settled(value.values()))
    if isinstance(value, Mapping):
        return {name: settled(entry) for name, entry in value.items()}
    if isinstance(value, list | tuple):
        return tuple(settled(entry) for entry in value)
    return value


def packed(value: Any) -> Any:
    """The value with a reading written as a mapping; everything else stays."""
    if not isinstance(value, Reading):
        return value
    return {_MARK: value.kind, "values": value.values(), "provenance": dataclasses.asdict(value.provenance)}


def unpacked(value: Any) -> Any:
    """The value that `packed` was given."""
    if not isinstance(value, dict) or _MARK not in value:
        return value
    return KINDS[value[_MARK]](**value["values"], provenance=Provenance.from_json(value["provenance"]))


@dataclass(frozen=True)
class Taken:
    """What was measured after `step` updates, and the loss there."""

    step: int
    loss: float
    value: Any
