"""A monitor: cheap readings while a network trains, within a share of the time of the run."""

import math
import time
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from torch import Tensor, nn

from skiplens.core.errors import InvalidInputError
from skiplens.readings.monitor import MonitorReading
from skiplens.training.monitor.destination import Destination
from skiplens.training.monitor.hugging_face import hugging_face_callback
from skiplens.training.monitor.ledger import Clock
from skiplens.training.monitor.lightning import lightning_callback
from skiplens.training.monitor.options import MonitorOptions
from skiplens.training.monitor.probe import Probe
from skiplens.training.monitor.record import earlier_reading
from skiplens.training.monitor.sight import Sight
from skiplens.training.monitor.tensorboard import Writer
from skiplens.training.monitor.watch import Watch


class Monitor:
    """Follows a network while it trains: depth, scales, weight norm, curvature, Jacobians, drift of its kernel.

    Looking changes nothing: weights, gradients, buffers and torch's random state are bit for bit those of a run without
    a monitor. It measures what it costs and looks less often where it would take more than its share of the time; the
    reading says so.

    Args:
        model: The model that trains.
        probe: What to look at, the same at each look: `(inputs, targets)`; a mapping of keyword arguments, with
            `labels` for a curvature; or inputs alone.
        loss: As for `hessian_spectrum`; by default the one that fits the targets, or the model's own for labels.
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
        loss: Any = None,
        *,
        path: Path | str | None = None,
        tensorboard: Writer | Path | str | None = None,
        clock: Clock = time.perf_counter,
        **options: Any,
    ) -> None:
        self.options = MonitorOptions.from_json(options)
        sight = Sight(model, Probe.of(probe, loss, self.options.samples), self.options)
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
