"""Progress of long work: the library calls back, whoever called it decides what to show."""

from collections.abc import Iterable, Iterator
from typing import Protocol, TypeVar, runtime_checkable

T = TypeVar("T")


@runtime_checkable  # so that tests can check annotations with it
class Progress(Protocol):
    """Called with what is being done, how much of it is done and how much there is in all."""

    def __call__(self, label: str, done: int, total: int) -> None:
        """Take note that `done` of `total` steps of `label` are finished."""


def silent(label: str, done: int, total: int) -> None:
    """Show nothing."""


def track(items: Iterable[T], label: str, total: int, progress: Progress = silent) -> Iterator[T]:
    """Yield `items`, reporting after each one."""
    progress(label, 0, total)
    for done, item in enumerate(items, start=1):
        yield item
        progress(label, done, total)
