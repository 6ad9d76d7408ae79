"""How much memory may be used: what is free now, on the processor or on a GPU."""

import os
from contextvars import ContextVar
from pathlib import Path

import torch

from skiplens.core.errors import TooLargeError

_SHARE_OF_FREE = 0.5  # the rest is for the caller, for caches and for what torch allocates beside our buffers

REDUCTION: ContextVar[float] = ContextVar("REDUCTION", default=1.0)
"""Share of the usual budgets that plans get; `halving_memory` lowers it after a shortage."""


def free_bytes(device: torch.device | str = "cpu") -> int:
    """Bytes that can be allocated on `device` now without swapping."""
    device = torch.device(device)
    if device.type == "cuda":
        free, _ = torch.cuda.mem_get_info(device)
        reserved = torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
        return free + reserved
    return min(_available_in_machine(), _available_in_container())


def budget_bytes(device: torch.device | str = "cpu", asked: int | None = None) -> int:
    """The budget to plan with: what the caller asked for, or half of what is free; less after a shortage."""
    usual = asked if asked is not None else free_bytes(device) * _SHARE_OF_FREE
    return int(usual * REDUCTION.get())


def require_fits(needed: int, what: str, instead: str, budget: int) -> None:
    """Refuse to start `what` if it needs more than `budget` bytes, and say what would fit."""
    if needed > budget:
        raise TooLargeError(f"{what} needs {readable(needed)}, but only {readable(budget)} may be used. {instead}")


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
