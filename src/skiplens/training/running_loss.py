"""The loss of a run from the losses of its batches: the last one, or their mean over the length of an epoch."""

from collections import deque
from typing import Any

from skiplens.core.errors import InvalidInputError
from skiplens.core.nearest import did_you_mean
from skiplens.training.callbacks import Moment


class RunningLoss:
    """The mean of the last losses; at the start, of as many as there are."""

    def __init__(self, window: int | None) -> None:
        self.window = window
        self._losses: deque[float] = deque()

    @classmethod
    def named(cls, name: str) -> "RunningLoss":
        """``"step"``: the loss of the last batch; ``"running"``: the mean over as many steps as an epoch has."""
        windows = {"step": 1, "running": None}
        if name not in windows:
            raise InvalidInputError(f"loss={name!r} is unknown. {did_you_mean(name, windows)} Or give a function.")
        return cls(windows[name])

    def note(self, moment: Moment) -> None:
        """Take in the loss of one more step."""
        self._losses.append(moment.loss)
        while len(self._losses) > (self.window or moment.steps_per_epoch):
            self._losses.popleft()

    @property
    def value(self) -> float:
        """The mean now."""
        return sum(self._losses) / len(self._losses)

    def state(self) -> dict[str, Any]:
        """The losses in the window."""
        return {"losses": list(self._losses)}

    def restore(self, state: dict[str, Any]) -> None:
        """Take up the losses that `state` gave."""
        self._losses = deque(state["losses"])
