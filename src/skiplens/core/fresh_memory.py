"""Large new tensors in huge pages: the usual small ones cost several times more to be handed out than to be filled."""

import contextlib
import math
import mmap

import torch
from torch import Tensor

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


def _mapped(like: Tensor, shape: tuple[int, ...]) -> Tensor | None:
    """A tensor in pages of its own, given back with it; None where that is of no use or not to be had."""
    size = math.prod(shape) * like.element_size()
    if not _HUGE_PAGES or like.device.type != "cpu" or size < _WORTHWHILE:
        return None
    try:
        pages = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    except OSError:
        return None  # torch tells it in its own words, which callers know
    with contextlib.suppress(OSError):  # a system may know huge pages and still have none
        pages.madvise(mmap.MADV_HUGEPAGE)
    return torch.frombuffer(pages, dtype=like.dtype).view(shape)
