"""Running out of memory is no end: the work is done again with half the budget, so in smaller pieces."""

from collections.abc import Callable
from typing import TypeVar

import torch

from skiplens.core.errors import TooLargeError
from skiplens.core.memory import REDUCTION

T = TypeVar("T")

LEAST = 1 / 64
"""Share of the usual budget below which the work is given up."""

_WORDS = ("out of memory", "can't allocate memory", "not enough memory")  # of CUDA, and of the CPU's allocators


def halving_memory(work: Callable[[], T], told: Callable[[float], None] = lambda share: None) -> T:
    """What `work` returns; after an out-of-memory it is done again with half of what `budget_bytes` gave before.

    Args:
        work: Plans from `skiplens.core.memory.budget_bytes` and can be done again.
        told: Called with the share of the usual budget before each new attempt.
    """
    share = REDUCTION.get()
    while share >= LEAST:
        try:
            return _with_share(share, work)
        except (RuntimeError, MemoryError) as error:
            if not is_shortage(error):
                raise
        share /= 2  # outside of the handler: the error holds on to the frames and with them to their tensors
        if torch.cuda.is_initialized():
            torch.cuda.empty_cache()
        told(share)
    raise TooLargeError(
        f"Memory ran out, and again with {LEAST:.1%} of the usual budget. Free some memory, look at fewer or smaller "
        "samples, or move the model to a device with more."
    )


def is_shortage(error: BaseException) -> bool:
    """Whether the error says that memory could not be allocated; a refusal of ours is none: it was planned."""
    if isinstance(error, TooLargeError):
        return False
    if isinstance(error, torch.OutOfMemoryError | MemoryError):
        return True
    return isinstance(error, RuntimeError) and any(words in str(error).lower() for words in _WORDS)


def _with_share(share: float, work: Callable[[], T]) -> T:
    token = REDUCTION.set(share)
    try:
        return work()
    finally:
        REDUCTION.reset(token)
