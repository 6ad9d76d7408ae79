"""The callback that measures along a run."""

import math
from typing import Any

from torch import nn

from skiplens.core.untouched import untouched
from skiplens.training.callbacks import Callback, Moment
from skiplens.training.measure_along import MeasureAlong, Taken
from skiplens.training.packing import packed, settled, unpacked
from skiplens.training.running_loss import RunningLoss
from skiplens.training.snapshot import Snapshot


class Measurer(Callback):
    """Takes the measurements of a plan while a run trains.

    Attributes:
        taken: The measurements so far, by step.
        crossings: For each loss that was reached, the step of the look before and of the look at which it was.
    """

    def __init__(self, plan: MeasureAlong) -> None:
        self.plan = plan
        self.taken: dict[int, Taken] = {}
        self.crossings: dict[float, tuple[int, int]] = {}
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
        last = None if self._last is None else [*self._last[:2], self._last[2].state()]
        running = self._loss.state() if isinstance(self._loss, RunningLoss) else {}
        return {"taken": taken, "crossings": self.crossings, "last": last, "running": running}

    def restore(self, state: dict[str, Any]) -> None:
        """Take up what was measured before."""
        self.taken = {step: Taken(step, loss, unpacked(value)) for step, loss, value in state["taken"]}
        self.crossings = dict(state["crossings"])
        last = state["last"]
        self._last = None if last is None else (last[0], last[1], Snapshot.restored(last[2]))
        if isinstance(self._loss, RunningLoss):
            self._loss.restore(state["running"])

    def _visit(self, moment: Moment, at_end: bool) -> None:
        step = moment.step
        wanted, look = step in self.plan.at_steps, self._looks_at(step, at_end)
        loss = self._loss_now(moment, at_end) if look or wanted else math.nan
        if wanted:
            self._take(step, loss, moment.model)
        if look:
            self._look(step, loss, moment.model)

    def _looks_at(self, step: int, at_end: bool) -> bool:
        known = not at_end or not isinstance(self._loss, RunningLoss)
        return bool(self._pending()) and known and (at_end or step % self.plan.every == 0)

    def _look(self, step: int, loss: float, model: nn.Module) -> None:
        reached = [wanted for wanted in self._pending() if loss <= wanted and self._came_from_above(wanted, loss)]
        if reached:
            before = self._measured_before(model) if self._last is not None else step
            self._take(step, loss, model)
            self.crossings.update(dict.fromkeys(reached, (before, step)))
        self._last = (step, loss, Snapshot.of(model)) if self._pending() else None

    def _came_from_above(self, wanted: float, loss: float) -> bool:
        return loss == wanted if self._last is None else self._last[1] > wanted

    def _measured_before(self, model: nn.Module) -> int:
        assert self._last is not None, "asked for only after a first look"
        step, loss, snapshot = self._last
        if step not in self.taken:
            with snapshot.held_by(model):
                self._take(step, loss, model)
        return step

    def _take(self, step: int, loss: float, model: nn.Module) -> None:
        if step not in self.taken:
            with untouched(model):
                model.eval()
                self.taken[step] = Taken(step, loss, settled(self.plan.measure(model)))

    def _pending(self) -> list[float]:
        return [wanted for wanted in self.plan.at_losses if wanted not in self.crossings]

    def _loss_now(self, moment: Moment, at_end: bool) -> float:
        if not isinstance(self._loss, RunningLoss):
            with untouched(moment.model):
                return float(self._loss(moment.model))
        return math.nan if at_end else self._loss.value
