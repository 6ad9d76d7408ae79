"""How a sweep stands: runs done, running, failed, and the time left."""

import time
from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True)
class Standing:
    """A moment of a sweep.

    Attributes:
        done: Runs that are in the store, those of earlier commands included.
        running: Runs being done now.
        failed: Runs that failed and will not be tried again in this sweep.
        total: All runs.
        seconds_left: Expected; None before the first run of this command has ended.
    """

    done: int
    running: int
    failed: int
    total: int
    seconds_left: float | None = None

    def __str__(self) -> str:
        """In words."""
        parts = [f"{self.done} of {self.total} runs done"]
        parts += [f"{self.running} running"] * bool(self.running)
        parts += [f"{self.failed} failed"] * bool(self.failed)
        left = self.seconds_left if self.done + self.failed < self.total else None
        parts += [f"about {_duration(left)} left"] if left is not None else []
        return ", ".join(parts)


Watch = Callable[[Standing], None]


def unwatched(standing: Standing) -> None:
    """Show nothing."""


class Clock:
    """Expects the time left from what the runs so far took, by their cost."""

    def __init__(self, cost: float, now: Callable[[], float] = time.monotonic) -> None:
        self._now, self._start = now, now()
        self._ahead, self._behind = cost, 0.0

    def passed(self, cost: float) -> None:
        """Take note that work of this cost is behind us."""
        self._ahead, self._behind = self._ahead - cost, self._behind + cost

    def seconds_left(self) -> float | None:
        """Expected from the pace so far; None without a pace."""
        if not self._behind:
            return None
        return max(0.0, self._ahead) * (self._now() - self._start) / self._behind


def _duration(seconds: float) -> str:
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"
