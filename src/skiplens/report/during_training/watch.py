"""Looks at a network in training, within a share of the run's time: what is measured when, and who pays for it."""

import contextlib
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path

import torch

from skiplens.base.errors import SkiplensError
from skiplens.graph.inputs import first_line
from skiplens.graph.loss import loss_name
from skiplens.readings.reading import Provenance
from skiplens.report.during_training.probed_model import ProbedModel
from skiplens.report.during_training.quantities import MEASURES, TAKEN_APART
from skiplens.report.during_training.record import Look, MonitorReading, Record, earlier_reading

Clock = Callable[[], float]


class Watch:
    """Takes looks at `sight`: `ledger` has what they took, `record` what they gave, on top of what `path` holds."""

    def __init__(self, sight: ProbedModel, clock: Clock, path: Path | None = None) -> None:
        options, loss = sight.options, sight.probe.loss
        self.sight, self.record = sight, Record()
        self.ledger = TimeBudget(options.share, options.quantities, clock)
        self._earlier = None if path is None else earlier_reading(path)
        settings = options.difference() | ({} if loss is None else {"loss": loss_name(loss)})
        self._origin = Provenance.begin(settings, options.seed, sight.device)

    def begin(self, step: int) -> None:
        """Start the clock, on top of what an earlier reading has from before `step`; a wrong probe is an error."""
        earlier = self._earlier
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
                self.record.skipped[name] = self.record.skipped.get(name, 0) + 1
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
        self._divide(look, seconds, list(look.costs), again=True)

    def reading(self) -> MonitorReading:
        """All looks so far."""
        record, ledger, options = self.record, self.ledger, self.sight.options
        return MonitorReading(
            **record.rows(),
            block_names=self.sight.block_names,
            quantile_levels=torch.tensor(options.levels, dtype=torch.float64),
            first_kernel=self.sight.first_kernel,
            shared_seconds=ledger.shared + ledger.in_vain,
            run_seconds=ledger.run_seconds,
            share=options.share,
            skipped=record.skipped,
            left_out=record.left_out,
            notes=(*record.notes, *self.sight.remarks),
            provenance=self._origin.end(),
        )

    def _see(self, look: Look, names: list[str]) -> None:
        ledger, device = self.ledger, self.sight.device
        together = [name for name in names if name in TAKEN_APART]
        with ledger.charged(None, device), self.sight.opened():
            if together:  # they share the graph and its cost; what fails here fails again in each of them
                before = ledger.shared
                with ledger.charged(None, device), contextlib.suppress(SkiplensError):
                    self.sight.dissected()
                self._divide(look, ledger.shared - before, together, again=False)
            for name in names:
                self._measure(name, look)

    def _divide(self, look: Look, seconds: float, names: list[str], again: bool) -> None:
        if names:
            self.ledger.divide(seconds, names, again)
        for name in names:
            look.costs[name] = look.costs.get(name, 0.0) + seconds / len(names)

    def _measure(self, name: str, look: Look) -> None:
        try:
            with self.ledger.charged(name, self.sight.device):
                numbers = MEASURES[name](self.sight)  # type: ignore[index]  # the options allow no other names
        except Exception as error:  # whatever a look meets, the run goes on
            self.ledger.write_off(name, look.costs.pop(name, 0.0) + self.ledger.last[name])
            reason = _reason(error)
            if any(name in earlier.costs for earlier in self.record.looks):
                self.record.miss(name, f"{name} could not be measured after {look.step} updates: {reason}")
            else:  # what was never measured is not tried again
                self.record.left_out[name] = reason
                self.ledger.open.remove(name)  # the others get its part of the time
        else:
            look.numbers.update(numbers)
            look.costs[name] = look.costs.get(name, 0.0) + self.ledger.last[name]


def _reason(error: Exception) -> str:
    return str(error) if isinstance(error, SkiplensError) else f"{type(error).__name__}: {first_line(error)}"


class TimeBudget:
    """Accounts of seconds: one for each quantity, and one for what they share.

    `share` times the seconds of the run is divided fairly: a quantity that needs less than an equal part takes what it
    needs, and those that need more divide the rest equally. So an expensive one is seen less often and takes nothing
    from the cheap ones. The first measurement of a quantity is always made; later ones wait until the run has lasted
    long enough to pay for it and for themselves.

    `spent` and `last` are seconds by quantity, in all and at the last measurement; `shared` those of no single
    quantity; `in_vain` those of what could not be measured; `open` are the quantities that are measured.
    """

    def __init__(self, share: float, names: Iterable[str], clock: Clock = time.perf_counter) -> None:
        self.share, self.shared, self.in_vain = share, 0.0, 0.0
        self.spent = dict.fromkeys(names, 0.0)
        self.last: dict[str, float] = {}
        self.open = list(self.spent)
        self._clock, self._run_before, self._own_before = clock, 0.0, 0.0
        self._began: float | None = None
        self._ended: float | None = None

    def begin(self, run_seconds: float = 0.0) -> None:
        """Start the clock of the run, which has lasted `run_seconds` already."""
        self._run_before, self._own_before = run_seconds, self.own_seconds
        self._began, self._ended = self._clock(), None

    def end(self) -> None:
        """Stop the clock of the run."""
        self._ended = self._clock()

    @property
    def own_seconds(self) -> float:
        """Seconds spent in all."""
        return self.shared + self.in_vain + sum(self.spent.values())

    @property
    def run_seconds(self) -> float:
        """Seconds of the run without those spent on looking."""
        if self._began is None:
            return self._run_before
        now = self._clock() if self._ended is None else self._ended
        return self._run_before + now - self._began - (self.own_seconds - self._own_before)

    def affordable(self) -> list[str]:
        """The quantities that may be measured now, if each takes as long as it did last time."""
        needs = {name: self.spent[name] + self.last.get(name, 0.0) for name in self.open}
        left = self.share * self.run_seconds - self.shared - self.in_vain
        found = {name for name in self.open if name not in self.last}
        for number, name in enumerate(sorted(needs, key=needs.__getitem__)):
            if name not in found and needs[name] > left / (len(needs) - number):
                break  # all that follow need more
            found.add(name)
            left -= needs[name]
        return [name for name in self.open if name in found]

    def write_off(self, name: str, seconds: float) -> None:
        """Take seconds that a quantity took in vain from its account; they stay spent."""
        self.spent[name] -= seconds
        self.in_vain += seconds

    def take_up(self, shared: float, looks: Iterable[Mapping[str, float]]) -> None:
        """Go on with the seconds that earlier looks took."""
        self.shared = shared
        for costs in looks:
            for name in self.spent.keys() & costs.keys():
                self._charge(name, costs[name])

    def divide(self, seconds: float, names: Sequence[str], again: bool = True) -> None:
        """Move seconds from what all share to some quantities in equal parts; `again`: as they will next time."""
        self.shared -= seconds
        for name in names:
            self.spent[name] += seconds / len(names)
            if again:
                self.last[name] += seconds / len(names)

    @contextlib.contextmanager
    def charged(self, name: str | None, device: torch.device) -> Iterator[None]:
        """Charge the time of a block to `name`, or to what all share, without what is charged inside the block.

        A GPU is waited for on both ends: what it still had to do before is the run's.
        """
        wait = torch.cuda.synchronize if device.type == "cuda" else lambda _: None
        wait(device)
        start, before = self._clock(), self.own_seconds
        try:
            yield
            wait(device)
        finally:
            self._charge(name, self._clock() - start - (self.own_seconds - before))

    def _charge(self, name: str | None, seconds: float) -> None:
        if name is None:
            self.shared += seconds
        else:
            self.spent[name] += seconds
            self.last[name] = seconds
