"""A monitor as a callback of the Trainer of Hugging Face transformers."""

from typing import TYPE_CHECKING, Any

from skiplens.core.doors import open_door

if TYPE_CHECKING:
    from skiplens.training.monitor.monitor import Monitor


def hugging_face_callback(monitor: "Monitor") -> Any:
    """A TrainerCallback that starts the monitor, tells it each update and closes it; one process of many looks."""
    transformers = open_door("transformers", "a callback of its Trainer")

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
