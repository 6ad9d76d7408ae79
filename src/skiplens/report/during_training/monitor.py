"""A monitor: cheap readings while a network trains, within a share of the time of the run."""

import contextlib
import math
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Protocol, Self, runtime_checkable

import torch
from torch import Tensor, nn

from skiplens.base.errors import InvalidInputError, SkiplensError
from skiplens.base.optional_imports import optional_import
from skiplens.graph.inputs import first_line
from skiplens.graph.loss import Loss, loss_name, loss_rule
from skiplens.readings.file import write_file
from skiplens.readings.reading import Provenance
from skiplens.report.during_training.frameworks import hugging_face_callback, lightning_callback
from skiplens.report.during_training.probed_model import Probe, ProbedModel
from skiplens.report.during_training.quantities import MEASURES, TAKEN_APART, Clock, TimeBudget
from skiplens.report.during_training.record import Look, MonitorOptions, MonitorReading, Record, earlier_reading


@runtime_checkable
class Writer(Protocol):
    """What is needed of a SummaryWriter: that of torch, of tensorboardX or of a logger."""

    def add_scalar(self, tag: str, scalar_value: float, global_step: int) -> Any:
        """Keep one number."""

    def flush(self) -> Any:
        """Write what is kept."""


class Monitor:
    """Follows a network while it trains: depth, scales, weight norm, curvature, Jacobians, drift of its kernel.

    Looking changes nothing: weights, gradients, buffers and torch's random state are bit for bit those of a run without
    a monitor. It measures what it costs and looks less often where it would take more than its share of the time; the
    reading says so.

    Args:
        model: The model that trains.
        probe: What to look at, the same at each look: `(inputs, targets)`; a mapping of keyword arguments, with
            `labels` for a curvature; or inputs alone.
        loss: Whose curvature is followed: a name (``"cross_entropy"``, ``"mse"``) or a function (outputs, targets) ->
            scalar; by default the one that fits the targets, or the model's own for labels.
        path: File that holds the reading, written whole at each look. If it exists, what it holds from before the
            step at which this run starts is kept.
        tensorboard: A folder, or a SummaryWriter.
        clock: What tells the time in seconds.
        options: Fields of `MonitorOptions`: every, share, quantities, samples, statistics, products, outputs, levels,
            seed.

    Examples:
        >>> import torch
        >>> layer = nn.Linear(2, 2)
        >>> with Monitor(layer, torch.ones(1, 2), every=5, quantities=("weight_norm",), share=1e9) as monitor:
        ...     for _ in range(10):
        ...         monitor.step()  # after each optimiser.step()
        >>> monitor.reading.steps.tolist()
        [0, 5, 10]
    """

    def __init__(
        self,
        model: nn.Module,
        probe: Any,
        *,
        loss: Loss = None,
        path: Path | str | None = None,
        tensorboard: Writer | Path | str | None = None,
        clock: Clock = time.perf_counter,
        **options: Any,
    ) -> None:
        self.options = MonitorOptions.from_json(options)
        loss_rule(loss)  # a wrong name is an error before the run
        sight = ProbedModel(model, Probe.of(probe, loss, self.options.samples), self.options)
        self._earlier = None if path is None else earlier_reading(Path(path))
        self._watch = Watch(sight, clock)
        self._destination = Destination(self._watch, path, tensorboard)
        self._step: int | None = None
        self._tried: int | None = None  # the last step at which a look was due

    @property
    def reading(self) -> MonitorReading:
        """All looks so far."""
        return self._watch.reading()

    def start(self, step: int = 0) -> Self:
        """Take the first look, at the model as it is after `step` updates; a run that goes on says how many."""
        self._begin(step, math.nan)
        return self

    def step(self, loss: Tensor | float | None = None, step: int | None = None) -> None:
        """Say that an update was made; look where a look is due.

        Args:
            loss: The loss of the step, kept at looks; it is read only then, so that a GPU need not be waited for.
            step: How many updates were made in all; one more than before if not given.
        """
        if self._step is None:
            self._begin(1 if step is None else step, _plain(loss))
            return
        now = self._step + 1 if step is None else step
        if now == self._step:
            return  # part of an update, where gradients are gathered over several batches
        before, self._step = self._step, now
        if now // self.options.every != before // self.options.every:
            self._look(_plain(loss))

    def close(self) -> MonitorReading:
        """Take a last look if its time can be paid for, write everything, and return the reading."""
        if self._step != self._tried:
            self._look(math.nan)
        return self.finish()

    def finish(self) -> MonitorReading:
        """Write everything without another look, and return the reading."""
        if self._step is not None:
            self._watch.ledger.end()
            self._destination.close()
        return self.reading

    def lightning(self) -> Any:
        """A callback for a Trainer of Lightning."""
        return lightning_callback(self)

    def hugging_face(self) -> Any:
        """A callback for a Trainer of Hugging Face transformers."""
        return hugging_face_callback(self)

    def require_same_model(self, model: nn.Module) -> None:
        """Refuse a trainer that trains another model than the one looked at."""
        own = self._watch.sight
        if not own.trains(model):
            raise InvalidInputError(
                f"The trainer trains a {type(model).__name__} that shares no parameter with the "
                f"{type(own.trained).__name__} of the monitor. Make the monitor with the model that is trained."
            )

    def __enter__(self) -> Self:
        """Take the first look, unless that is done."""
        return self.start() if self._step is None else self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Take a last look, or after an error write what there is."""
        if error is None:
            self.close()
        else:
            self.finish()

    def _begin(self, step: int, loss: float) -> None:
        if self._step is not None:
            raise InvalidInputError(f"The monitor has started already, and {self._step} updates were made since then.")
        self._destination.open()
        self._watch.begin(step, self._earlier)
        self._step = step
        self._look(loss)

    def _look(self, loss: float) -> None:
        assert self._step is not None, "looks are taken after the start only"
        self._tried = self._step
        before = self._watch.ledger.shared
        look = self._watch.look(self._step, loss)
        if look is not None:
            self._destination.keep(look)
            self._watch.settle(look, self._watch.ledger.shared - before)


def _plain(loss: Tensor | float | None) -> float:
    return math.nan if loss is None else float(loss.detach() if isinstance(loss, Tensor) else loss)


class Watch:
    """Takes looks and keeps what they gave and took.

    Attributes:
        sight: What is looked at.
        ledger: What looking took.
        record: What was seen.
    """

    def __init__(self, sight: ProbedModel, clock: Clock) -> None:
        options = sight.options
        self.sight, self.record = sight, Record()
        self.ledger = TimeBudget(options.share, options.quantities, clock)
        loss = {} if sight.probe.loss is None else {"loss": loss_name(sight.probe.loss)}
        self._origin = Provenance.begin(options.difference() | loss, options.seed, sight.device)

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


class Destination:
    """Writes each look of a watch; the time that takes is the watch's."""

    def __init__(self, watch: Watch, path: Path | str | None, tensorboard: Writer | Path | str | None) -> None:
        self._watch, self._tensorboard = watch, tensorboard
        self._path = None if path is None else Path(path)
        self._writer: Writer | None = None
        self._opened: Any = None

    def open(self) -> None:
        """Open TensorBoard's files."""
        if self._tensorboard is not None:
            self._writer, self._opened = writer_in(self._tensorboard)

    def keep(self, look: Look) -> None:
        """Write a look; a disk that fails is an error at the first look and a note later: the run goes on."""
        with self._watch.ledger.charged(None, self._watch.sight.device):
            try:
                self._write()
                if self._writer is not None:
                    write_scalars(self._writer, look.step, look.numbers, self._parts())
            except (SkiplensError, OSError) as error:
                if len(self._watch.record.looks) == 1:
                    raise
                self._watch.record.note(f"A look could not be written at once: {error}")

    def close(self) -> None:
        """Write everything and close what was opened here."""
        self._write()
        if self._opened is not None:
            self._opened.close()
            self._writer = self._opened = None

    def _write(self) -> None:
        if self._path is not None:
            write_file(self._path, self._watch.reading())

    def _parts(self) -> dict[str, tuple[str, ...]]:
        """What the entries of rows are called."""
        sight = self._watch.sight
        levels = tuple(f"{level:g}" for level in sight.options.levels)
        return {"scales": sight.block_names, "jacobian_quantiles": levels}


def writer_in(place: Writer | Path | str) -> tuple[Writer, Any]:
    """The writer, and what is to be closed in the end: a writer that was made here, into a folder, or nothing."""
    if isinstance(place, Writer):
        return place, None
    module = optional_import("torch.utils.tensorboard", "writing TensorBoard files", install="skiplens[tensorboard]")
    writer = module.SummaryWriter(log_dir=str(place))
    return writer, writer


def write_scalars(writer: Writer, step: int, numbers: Mapping[str, Tensor], parts: Mapping[str, Sequence[str]]) -> None:
    """Write numbers as `skiplens/<name>`, and the entries of `parts`' rows as `skiplens/<name>/<part>`."""
    for name, value in numbers.items():
        if value.ndim == 0:
            writer.add_scalar(f"skiplens/{name}", float(value), step)
        for part, entry in zip(parts.get(name, ()), value.reshape(-1).tolist(), strict=False):
            writer.add_scalar(f"skiplens/{name}/{part}", entry, step)
    writer.flush()


def _reason(error: Exception) -> str:
    return str(error) if isinstance(error, SkiplensError) else f"{type(error).__name__}: {first_line(error)}"
