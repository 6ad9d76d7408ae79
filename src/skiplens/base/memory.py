"""Memory: how much may be used, large new tensors in huge pages, work done again with less when it ran out."""

import contextlib
import ctypes
import math
import mmap
import os
import weakref
from collections.abc import Callable, Iterator
from contextvars import ContextVar
from pathlib import Path
from typing import Any, TypeVar

import torch
from torch import Tensor

from skiplens.base.errors import InvalidInputError, TooLargeError

_SHARE_OF_FREE = 0.5  # the rest is for the caller, for caches and for what torch allocates beside our buffers
REDUCTION: ContextVar[float] = ContextVar("REDUCTION", default=1.0)
"""Share of the usual budgets that plans get; `halving_memory` lowers it after a shortage."""
CEILING: ContextVar[float] = ContextVar("CEILING", default=math.inf)
"""Bytes that plans get at most where the caller asks for none."""


def free_bytes(device: torch.device | str = "cpu") -> int:
    """Bytes that can be allocated on `device` now without swapping."""
    device = torch.device(device)
    if device.type == "cuda":
        reserved = torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
        return torch.cuda.mem_get_info(device)[0] + reserved
    return min(_available_in_machine(), _available_in_container())


def budget_bytes(device: torch.device | str = "cpu", asked: int | None = None) -> int:
    """The budget to plan with: what the caller asked for, or half of what is free; less after a shortage."""
    if asked is not None and (isinstance(asked, bool) or not isinstance(asked, int | float)):
        raise InvalidInputError(f"memory is a number of bytes, such as 2**30; got {asked!r}.")
    usual = asked if asked is not None else min(free_bytes(device) * _SHARE_OF_FREE, CEILING.get())
    return int(usual * REDUCTION.get())


@contextlib.contextmanager
def share_of_memory(share: float) -> Iterator[None]:
    """Inside, budgets are this share of what they would be: something else that is held needs the rest."""
    token = REDUCTION.set(REDUCTION.get() * share)
    try:
        yield
    finally:
        REDUCTION.reset(token)


def require_fits(needed: int, what: str, instead: str, budget: int) -> None:
    """Refuse to start `what` if it needs more than `budget` bytes, and say what would fit."""
    if needed > budget:
        raise TooLargeError(f"{what} needs {readable(needed)}, but only {readable(budget)} may be used. {instead}")


def require_least(memory: int | None, least: float, what: str) -> None:
    """Refuse a budget that was asked for where even the smallest pieces of `what` need more bytes."""
    budget_bytes("cpu", memory)  # refuses what is no number
    least /= REDUCTION.get()
    if memory is not None and memory < least:
        raise TooLargeError(
            f"memory={memory} bytes does not do for {what}: the least that does is {math.ceil(least)} "
            f"({readable(least)})."
        )


def readable(count: float) -> str:
    """Bytes as a person writes them: `readable(3 * 2**30)` is ``'3.0 GiB'``."""
    for unit in ("B", "KiB", "MiB", "GiB", "TiB"):
        if abs(count) < 1024 or unit == "TiB":
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1024
    raise AssertionError("unreachable: the loop ends at TiB")


def _available_in_machine() -> int:
    meminfo = Path("/proc/meminfo")
    if meminfo.exists():
        for line in meminfo.read_text().splitlines():
            if line.startswith("MemAvailable:"):
                return int(line.split()[1]) * 1024
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def _available_in_container() -> int:
    limit, used = Path("/sys/fs/cgroup/memory.max"), Path("/sys/fs/cgroup/memory.current")
    if not (limit.exists() and used.exists()):
        return 2**62
    text = limit.read_text().strip()
    return 2**62 if text == "max" else max(0, int(text) - int(used.read_text()))


_WORTHWHILE = 2**26  # bytes; below, memory that was freed before is mostly handed out again, without new pages
_HUGE_PAGES = hasattr(mmap, "MADV_HUGEPAGE")  # Linux


def fresh_empty(like: Tensor, *shape: int) -> Tensor:
    """A tensor with the dtype and device of `like` and whatever is in its memory; it cannot be resized if large."""
    mapped = _mapped(like, shape)
    return like.new_empty(shape) if mapped is None else mapped


def fresh_zeros(like: Tensor, *shape: int) -> Tensor:
    """The same full of zeros, which new pages are anyway."""
    mapped = _mapped(like, shape)
    return like.new_zeros(shape) if mapped is None else mapped


_LENT: ContextVar[list[tuple[Tensor, "weakref.ref[Any]"]] | None] = ContextVar("_LENT", default=None)


@contextlib.contextmanager
def recycling() -> Iterator[None]:
    """In here `recycled_empty` hands out again what nothing holds any more; new pages cost more than arithmetic."""
    token = _LENT.set([])
    try:
        yield
    finally:
        _LENT.reset(token)


def recycled_empty(like: Tensor, *shape: int) -> Tensor:
    """As `like.new_empty(shape)`, on the CPU in memory that was used before."""
    lent, fits = _LENT.get(), (math.prod(shape), like.dtype)
    if lent is None or like.device.type != "cpu" or fits[0] < 2**17:  # the C library keeps less itself
        return like.new_empty(shape)
    idle = [n for n, (part, held) in enumerate(lent) if held() is None and (len(part), part.dtype) == fits]
    part = lent.pop(idle[0])[0] if idle else like.new_empty(fits[0])
    view = part.numpy()[:]  # held by the tensor made of it, and by whatever views that
    lent.append((part, weakref.ref(view)))
    return torch.from_numpy(view).view(shape)


def _mapped(like: Tensor, shape: tuple[int, ...]) -> Tensor | None:
    """A tensor in pages of its own, given back with it; None where that is of no use or not to be had."""
    size = math.prod(shape) * like.element_size()
    if not _HUGE_PAGES or like.device.type != "cpu" or size < _WORTHWHILE:
        return None
    try:
        pages = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    except OSError:
        return None  # torch says it in its own words, which callers know
    with contextlib.suppress(OSError):  # a system may know huge pages and still have none
        pages.madvise(mmap.MADV_HUGEPAGE)
    return torch.frombuffer(pages, dtype=like.dtype).view(shape)


def give_back() -> None:
    """Hand freed memory back to the system; the C library of Linux keeps it, gigabytes after a training of copies."""
    with contextlib.suppress(AttributeError, OSError, TypeError):  # of other systems
        ctypes.CDLL(None).malloc_trim(0)


T = TypeVar("T")
LEAST = 1 / 64  # share of the usual budget below which the work is given up
_WORDS = ("out of memory", "can't allocate memory", "not enough memory")  # of CUDA, and of the CPU's allocators


def memory_retry(work: Callable[[], T], told: Callable[[float], None] = lambda share: None) -> T:
    """What `work` returns; after an out-of-memory it is done again with half of what `budget_bytes` gave before.

    `told` is called with the share of the usual budget before each new attempt.
    """
    share = REDUCTION.get()
    while share >= LEAST:
        token = REDUCTION.set(share)
        try:
            return work()
        except (RuntimeError, MemoryError) as error:
            if not is_shortage(error):
                raise
        finally:
            REDUCTION.reset(token)
        share /= 2  # outside of the handler: the error holds on to the frames and with them to their tensors
        if torch.cuda.is_initialized():
            torch.cuda.empty_cache()
        told(share)
    raise TooLargeError(
        f"Memory ran out, and again with {100 * LEAST:.1f} % of the usual budget. Free some memory, look at fewer or "
        "smaller samples, or move the model to a device with more."
    )


def is_shortage(error: BaseException) -> bool:
    """Whether the error says that memory could not be allocated; a refusal of ours is none: it was planned."""
    if isinstance(error, TooLargeError):
        return False
    if isinstance(error, torch.OutOfMemoryError | MemoryError):
        return True
    return isinstance(error, RuntimeError) and any(words in str(error).lower() for words in _WORDS)
