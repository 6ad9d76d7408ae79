"""A monitor: cheap readings while a network trains, within a share of the time of the run."""

import math
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import ModuleType, TracebackType
from typing import Any, Literal, Protocol, Self, runtime_checkable

from torch import Tensor, nn

from skiplens.base.errors import InvalidInputError, SkiplensError
from skiplens.base.optional_imports import optional_import
from skiplens.graph.loss import Loss, loss_rule
from skiplens.readings.file import write_file
from skiplens.report.during_training.probed_model import Probe, ProbedModel
from skiplens.report.during_training.record import QUANTITIES, Look, MonitorOptions, MonitorReading, Quantity
from skiplens.report.during_training.watch import Clock, Watch


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
        every: Steps between two looks.
        share: Share of the run's time that looking may take, divided fairly between the quantities.
        quantities: What to look at; the order is that of measuring.
        samples: Samples of the probe to look at, the first ones.
        statistics: What batch norm divides by while looked at: the samples looked at, or its running statistics.
        products: Hessian-vector products for the two extreme eigenvalues of a look, at most.
        outputs: Outputs whose tangent kernel is followed; where a model has more, these are drawn.
        levels: Quantiles of the Jacobian's singular values.
        seed: Names the random vectors and the outputs drawn.

    Examples:
        >>> import torch
        >>> layer = nn.Linear(2, 2)
        >>> with Monitor(layer, torch.ones(1, 2), every=5, quantities=("weight_norm",), share=1e9) as monitor:
        ...     for _ in range(10):
        ...         monitor.step()  # after each optimiser.step()
        >>> monitor.reading.steps.tolist()
        [0, 5, 10]
    """

    def __init__(  # noqa: PLR0913 - the model, the probe, and keywords of which each has a default
        self,
        model: nn.Module,
        probe: Any,
        *,
        loss: Loss = None,
        path: Path | str | None = None,
        tensorboard: Writer | Path | str | None = None,
        clock: Clock = time.perf_counter,
        every: int = 100,
        share: float = 0.05,
        quantities: Sequence[Quantity] = QUANTITIES,
        samples: int = 16,
        statistics: Literal["probe", "running"] = "probe",
        products: int = 20,
        outputs: int = 16,
        levels: Sequence[float] = (0.05, 0.25, 0.5, 0.75, 0.95),
        seed: int = 0,
    ) -> None:
        asked = (every, share, tuple(quantities), samples, statistics, products, outputs, tuple(levels), seed)
        self.options = MonitorOptions(*asked)
        loss_rule(loss)  # a wrong name is an error before the run
        self._path = None if path is None else Path(path)
        self._watch = Watch(ProbedModel(model, Probe.of(probe, loss, samples), self.options), clock, self._path)
        self._tensorboard = tensorboard
        self._writer: Writer | None = None
        self._opened: Any = None
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
            self._write_file()
            if self._opened is not None:
                self._opened.close()
                self._writer = self._opened = None
        return self.reading

    def lightning(self) -> Any:
        """A callback for a Trainer of Lightning."""
        return lightning_callback(self)

    def hugging_face(self) -> Any:
        """A callback for a Trainer of Hugging Face transformers."""
        return hugging_face_callback(self)

    def require_same_model(self, model: nn.Module) -> None:
        """Refuse a trainer that trains another model than the one looked at."""
        own = self._watch.sight.trained
        if {id(parameter) for parameter in own.parameters()}.isdisjoint(map(id, model.parameters())):
            raise InvalidInputError(
                f"The trainer trains a {type(model).__name__} that shares no parameter with the {type(own).__name__} "
                "of the monitor. Make the monitor with the model that is trained."
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
        self._open_writer()
        self._watch.begin(step)
        self._step = step
        self._look(loss)

    def _look(self, loss: float) -> None:
        assert self._step is not None, "looks are taken after the start only"
        self._tried = self._step
        before = self._watch.ledger.shared
        look = self._watch.look(self._step, loss)
        if look is not None:
            self._keep(look)
            self._watch.settle(look, self._watch.ledger.shared - before)

    def _open_writer(self) -> None:
        """Open TensorBoard's files, where a folder was given and not a writer."""
        place = self._tensorboard
        if place is None or isinstance(place, Writer):
            self._writer = place
            return
        what = ("torch.utils.tensorboard", "writing TensorBoard files")
        self._opened = optional_import(*what, install="skiplens[tensorboard]").SummaryWriter(log_dir=str(place))
        self._writer = self._opened

    def _keep(self, look: Look) -> None:
        """Write a look; a disk that fails is an error at the first look and a note later: the run goes on."""
        sight = self._watch.sight
        with self._watch.ledger.charged(None, sight.device):
            try:
                self._write_file()
                if self._writer is not None:
                    levels = tuple(f"{level:g}" for level in self.options.levels)
                    parts = {"scales": sight.block_names, "jacobian_quantiles": levels}
                    write_scalars(self._writer, look.step, look.numbers, parts)
            except (SkiplensError, OSError) as error:
                if len(self._watch.record.looks) == 1:
                    raise
                self._watch.record.note(f"A look could not be written at once: {error}")

    def _write_file(self) -> None:
        if self._path is not None:
            write_file(self._path, self.reading)


def _plain(loss: Tensor | float | None) -> float:
    return math.nan if loss is None else float(loss.detach() if isinstance(loss, Tensor) else loss)


def write_scalars(writer: Writer, step: int, numbers: Mapping[str, Tensor], parts: Mapping[str, Sequence[str]]) -> None:
    """Write numbers as `skiplens/<name>`, and the entries of `parts`' rows as `skiplens/<name>/<part>`."""
    for name, value in numbers.items():
        if value.ndim == 0:
            writer.add_scalar(f"skiplens/{name}", float(value), step)
        for part, entry in zip(parts.get(name, ()), value.reshape(-1).tolist(), strict=False):
            writer.add_scalar(f"skiplens/{name}/{part}", entry, step)
    writer.flush()


def lightning_callback(monitor: Monitor) -> Any:
    """A Lightning callback that starts the monitor, tells it each update and closes it; one process of many looks."""

    class MonitorCallback(_package().Callback):  # type: ignore[misc]  # opened when used
        def on_train_start(self, trainer: Any, pl_module: Any) -> None:
            monitor.require_same_model(pl_module)
            if trainer.is_global_zero:
                monitor.start(trainer.global_step)

        def on_train_batch_end(self, trainer: Any, pl_module: Any, outputs: Any, batch: Any, batch_idx: int) -> None:
            if trainer.is_global_zero:
                monitor.step(_loss(outputs), trainer.global_step)

        def on_train_end(self, trainer: Any, pl_module: Any) -> None:
            if trainer.is_global_zero:
                monitor.close()

        def on_exception(self, trainer: Any, pl_module: Any, exception: BaseException) -> None:
            if trainer.is_global_zero:
                monitor.finish()

    return MonitorCallback()


def _package() -> ModuleType:
    """Lightning under the one of its two names that is loaded already (a Trainer takes callbacks of its own name)."""
    names = ("lightning.pytorch", "pytorch_lightning")
    loaded = [module for name in names if (module := sys.modules.get(name)) is not None]
    if loaded:
        return loaded[0]
    try:
        return optional_import(names[0], "a callback of Lightning")
    except ImportError:
        return optional_import(names[1], "a callback of Lightning", install="skiplens[lightning]")


def _loss(outputs: Any) -> Tensor | float | None:
    """The loss in what a training step returned: the tensor itself, or the entry of that name."""
    loss = outputs.get("loss") if isinstance(outputs, Mapping) else outputs
    return loss if isinstance(loss, Tensor | float) else None


def hugging_face_callback(monitor: Monitor) -> Any:
    """A TrainerCallback that starts the monitor, tells it each update and closes it; one process of many looks.

    The Trainer does not tell its callbacks the loss of a step.
    """
    transformers = optional_import("transformers", "a callback of its Trainer")

    class MonitorCallback(transformers.TrainerCallback):  # type: ignore[name-defined]  # opened when used
        def on_train_begin(self, args: Any, state: Any, control: Any, **others: Any) -> None:
            if others.get("model") is not None:
                monitor.require_same_model(others["model"])
            if state.is_world_process_zero:
                monitor.start(state.global_step)

        def on_step_end(self, args: Any, state: Any, control: Any, **others: Any) -> None:
            if state.is_world_process_zero:
                monitor.step(step=state.global_step)

        def on_train_end(self, args: Any, state: Any, control: Any, **others: Any) -> None:
            if state.is_world_process_zero:
                monitor.close()

    return MonitorCallback()
