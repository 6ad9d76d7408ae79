"""Looks at a model in training: what is due and can be paid for is measured, and what fails is said once."""

import contextlib

import torch

from skiplens.core.errors import SkiplensError
from skiplens.readings.monitor import MonitorReading
from skiplens.readings.provenance import Provenance
from skiplens.residual.trial import first_line
from skiplens.training.monitor.ledger import Clock, Ledger
from skiplens.training.monitor.quantities import MEASURES, TAKEN_APART
from skiplens.training.monitor.record import Look, Record
from skiplens.training.monitor.sight import Sight


class Watch:
    """Takes looks and keeps what they gave and took.

    Attributes:
        sight: What is looked at.
        ledger: What looking took.
        record: What was seen.
    """

    def __init__(self, sight: Sight, clock: Clock) -> None:
        options = sight.options
        self.sight, self.record = sight, Record()
        self.ledger = Ledger(options.share, options.quantities, clock)
        self._origin = Provenance.begin(options.difference(), options.seed, sight.device)

    def begin(self, step: int, earlier: MonitorReading | None) -> None:
        """Start the clock, on top of what an earlier reading has from before `step`; a wrong probe is an error."""
        if earlier is not None and step > 0:
            self.record = Record.before(earlier, step)
            self.sight.first_kernel = earlier.first_kernel
            self.ledger.take_up(earlier.shared_seconds, [look.costs for look in self.record.looks])
        self.ledger.begin(earlier.run_seconds if self.record.looks and earlier is not None else 0.0)
        with self.ledger.charged(None, self.sight.device), self.sight.opened():
            self.sight.outputs()

    def look(self, step: int, loss: float) -> Look | None:
        """Measure what may be measured now; None if that is nothing."""
        affordable = self.ledger.affordable()
        for name in self.ledger.open:
            if name not in affordable:
                self.record.skip(name)
        if not affordable and self.record.looks:
            return None
        look = Look(step, loss)
        try:
            self._see(look, affordable)
        except Exception as error:
            if not self.record.looks:
                raise
            self.record.miss("look", f"There is no look after {step} updates: {_reason(error)}")
            return None
        self.record.add(look)
        return look

    def settle(self, look: Look, seconds: float) -> None:
        """Let those that were measured at a look pay what was shared by them alone."""
        if look.costs:
            self._divide(look, seconds, list(look.costs), again=True)

    def reading(self) -> MonitorReading:
        """All looks so far."""
        record, ledger, options = self.record, self.ledger, self.sight.options
        return MonitorReading(
            steps=record.steps(),
            losses=record.losses(),
            measured=record.measured(),
            block_names=self.sight.block_names,
            quantile_levels=torch.tensor(options.levels, dtype=torch.float64),
            first_kernel=self.sight.first_kernel,
            costs=record.costs(),
            shared_seconds=ledger.shared + ledger.in_vain,
            run_seconds=ledger.run_seconds,
            share=options.share,
            skipped=record.skipped,
            left_out=record.left_out,
            notes=(*record.notes, *self.sight.remarks),
            provenance=self._origin.end(),
        )

    def _see(self, look: Look, names: list[str]) -> None:
        with self.ledger.charged(None, self.sight.device), self.sight.opened():
            self._take_apart(look, names)
            for name in names:
                self._measure(name, look)

    def _take_apart(self, look: Look, names: list[str]) -> None:
        """Do what some quantities need on the account of all of these; what fails here fails again in each of them."""
        together = [name for name in names if name in TAKEN_APART]
        before = self.ledger.shared
        if together:
            with self.ledger.charged(None, self.sight.device), contextlib.suppress(SkiplensError):
                self.sight.dissected()
            seconds = self.ledger.shared - before
            self._divide(look, seconds, together, again=False)

    def _divide(self, look: Look, seconds: float, names: list[str], again: bool) -> None:
        self.ledger.divide(seconds, names, again)
        for name in names:
            look.costs[name] = look.costs.get(name, 0.0) + seconds / len(names)

    def _measure(self, name: str, look: Look) -> None:
        try:
            with self.ledger.charged(name, self.sight.device):
                numbers = MEASURES[name](self.sight)  # type: ignore[index]  # the options allow no other names
        except Exception as error:  # whatever a look meets, the run goes on
            self.ledger.write_off(name, look.costs.pop(name, 0.0) + self.ledger.last[name])
            self._miss(name, look.step, error)
        else:
            look.numbers.update(numbers)
            look.costs[name] = look.costs.get(name, 0.0) + self.ledger.last[name]

    def _miss(self, name: str, step: int, error: Exception) -> None:
        """Say once what could not be measured; what was never measured is not tried again."""
        reason = _reason(error)
        if self.record.has(name):
            self.record.miss(name, f"{name} could not be measured after {step} updates: {reason}")
        else:
            self.record.left_out[name] = reason
            self.ledger.close(name)


def _reason(error: Exception) -> str:
    return str(error) if isinstance(error, SkiplensError) else f"{type(error).__name__}: {first_line(error)}"
