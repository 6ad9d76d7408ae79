"""Progress of long work: the library calls back, whoever called it decides what to show."""

import sys
from collections.abc import Iterable, Iterator
from typing import Protocol, TypeVar, runtime_checkable

T = TypeVar("T")
LINE = 80


@runtime_checkable  # so that tests can check annotations with it
class Progress(Protocol):
    """Called with what is being done, how much of it is done and how much there is in all."""

    def __call__(self, label: str, done: int, total: int) -> None:
        """Take note that `done` of `total` steps of `label` are finished."""


def silent(label: str, done: int, total: int) -> None:
    """Show nothing."""


def usual() -> Progress:
    """What a call shows that was not told what to show: a line in a notebook, nothing elsewhere."""
    shell = getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)()
    return _one_line if hasattr(shell, "kernel") else silent


def _one_line(label: str, done: int, total: int) -> None:
    """The same line of a notebook again and again."""
    sys.stdout.write(f"\r{label}: {done} of {total}"[:LINE].ljust(LINE))
    sys.stdout.flush()


def stage(name: str, progress: Progress) -> Progress:
    """`progress` of one stage: its labels begin with its name, `paths: deleting blocks`; sentences stay as they are."""
    return lambda label, *counts: progress(label if label.endswith(".") else f"{name}: {label}", *counts)


def track(items: Iterable[T], label: str, total: int, progress: Progress = silent) -> Iterator[T]:
    """Yield `items`, reporting after each one."""
    progress(label, 0, total)
    for done, item in enumerate(items, start=1):
        yield item
        progress(label, done, total)
