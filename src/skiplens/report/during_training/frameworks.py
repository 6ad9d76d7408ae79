"""A monitor as a callback of Lightning."""

import sys
from collections.abc import Mapping
from types import ModuleType
from typing import TYPE_CHECKING, Any

from torch import Tensor

from skiplens.base.optional_imports import optional_import

if TYPE_CHECKING:
    from skiplens.report.during_training.monitor import Monitor

_PACKAGES = ("lightning.pytorch", "pytorch_lightning")
"""The same package under its two names; a Trainer takes callbacks of its own name."""


def lightning_callback(monitor: "Monitor") -> Any:
    """A Lightning callback that starts the monitor, tells it each update and closes it; one process of many looks."""

    class MonitorCallback(_package().Callback):  # type: ignore[misc]  # opened when used
        """Tells a monitor what a Trainer does."""

        def on_train_start(self, trainer: Any, pl_module: Any) -> None:
            """Take the first look."""
            monitor.require_same_model(pl_module)
            if trainer.is_global_zero:
                monitor.start(trainer.global_step)

        def on_train_batch_end(self, trainer: Any, pl_module: Any, outputs: Any, batch: Any, batch_idx: int) -> None:
            """Count the updates; a batch whose gradients are only gathered is none."""
            if trainer.is_global_zero:
                monitor.step(_loss(outputs), trainer.global_step)

        def on_train_end(self, trainer: Any, pl_module: Any) -> None:
            """Take the last look."""
            if trainer.is_global_zero:
                monitor.close()

        def on_exception(self, trainer: Any, pl_module: Any, exception: BaseException) -> None:
            """Write what there is."""
            if trainer.is_global_zero:
                monitor.finish()

    return MonitorCallback()


def _package() -> ModuleType:
    """The package that is loaded already, or else the one that is installed."""
    loaded = [module for name in _PACKAGES if (module := sys.modules.get(name)) is not None]
    if loaded:
        return loaded[0]
    try:
        return optional_import(_PACKAGES[0], "a callback of Lightning")
    except ImportError:
        return optional_import(_PACKAGES[1], "a callback of Lightning", install="skiplens[lightning]")


def _loss(outputs: Any) -> Tensor | float | None:
    """The loss in what a training step returned: the tensor itself, or the entry of that name."""
    loss = outputs.get("loss") if isinstance(outputs, Mapping) else outputs
    return loss if isinstance(loss, Tensor | float) else None


def hugging_face_callback(monitor: "Monitor") -> Any:
    """A TrainerCallback that starts the monitor, tells it each update and closes it; one process of many looks."""
    transformers = optional_import("transformers", "a callback of its Trainer")

    class MonitorCallback(transformers.TrainerCallback):  # type: ignore[name-defined]  # opened when used
        """Tells a monitor what a Trainer does; the Trainer does not tell its callbacks the loss of a step."""

        def on_train_begin(self, args: Any, state: Any, control: Any, **others: Any) -> None:
            """Take the first look."""
            if others.get("model") is not None:
                monitor.require_same_model(others["model"])
            if state.is_world_process_zero:
                monitor.start(state.global_step)

        def on_step_end(self, args: Any, state: Any, control: Any, **others: Any) -> None:
            """Count the updates."""
            if state.is_world_process_zero:
                monitor.step(step=state.global_step)

        def on_train_end(self, args: Any, state: Any, control: Any, **others: Any) -> None:
            """Take the last look."""
            if state.is_world_process_zero:
                monitor.close()

    return MonitorCallback()
