"""Large new tensors: ordinary ones but for where their memory comes from."""

import copy
import gc
import mmap
import platform
import subprocess
import sys

import pytest
import torch

from skiplens.base import memory
from skiplens.base.memory import fresh_empty, fresh_zeros

RECYCLED = 2**17  # numbers that are at least recycled
SIDE = 3000  # 9 million numbers: above the limit in float64


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.int64])
@pytest.mark.parametrize("side", [0, 3, SIDE])
@pytest.mark.parametrize("fresh", [fresh_empty, fresh_zeros])
def test_shape_and_dtype_are_those_asked_for(fresh, side, dtype):
    found = fresh(torch.empty(0, dtype=dtype), side, side)
    assert found.shape == (side, side) and found.dtype == dtype and found.is_contiguous()


@pytest.mark.parametrize("side", [3, SIDE])
def test_zeros_are_zeros_even_after_others_were_freed(side):
    like = torch.empty(0, dtype=torch.float64)
    for _ in range(3):
        used = fresh_zeros(like, side, side)
        assert used.count_nonzero() == 0
        used.fill_(7)
        del used


def test_large_tensors_can_do_what_others_can():
    large = fresh_zeros(torch.empty(0, dtype=torch.float64), SIDE, SIDE)
    large[1, 2] = 5
    assert large.T[2, 1] == 5 and large.sum() == 5 and large.numpy()[1, 2] == 5
    assert torch.equal(copy.deepcopy(large), large)
    assert (large + 1).requires_grad_().sum().requires_grad


@pytest.mark.skipif(not hasattr(mmap, "MADV_HUGEPAGE"), reason="only Linux has huge pages")
def test_memory_is_given_back(monkeypatch):
    made = []
    real = mmap.mmap

    class Noted(real):
        def __del__(self):
            made.remove(id(self))

    def note(*args, **kwargs):
        pages = Noted(*args, **kwargs)
        made.append(id(pages))
        return pages

    monkeypatch.setattr(memory.mmap, "mmap", note)
    large = fresh_zeros(torch.empty(0, dtype=torch.float64), SIDE, SIDE)
    view = large[5:]
    del large
    gc.collect()
    assert len(made) == 1 and view.sum() == 0
    del view
    gc.collect()
    assert made == []


@pytest.mark.skipif(not hasattr(mmap, "MADV_HUGEPAGE"), reason="only Linux has huge pages")
def test_a_system_that_gives_no_pages_leaves_it_to_torch(monkeypatch):
    def refuse(*args, **kwargs):
        raise OSError(12, "Cannot allocate memory")

    monkeypatch.setattr(memory.mmap, "mmap", refuse)
    assert fresh_zeros(torch.empty(0, dtype=torch.float64), SIDE, SIDE).count_nonzero() == 0


@pytest.mark.gpu
def test_on_a_gpu_it_is_torchs_memory():
    assert fresh_empty(torch.empty(0, device="cuda"), SIDE, SIDE).device.type == "cuda"


def rooms(count):
    """Numbers of which nothing else is held, as large as what is recycled."""
    return [memory.recycled_empty(torch.empty(0, dtype=torch.float64), 2, RECYCLED) for _ in range(count)]


def test_memory_that_nothing_holds_is_handed_out_again():
    with memory.recycling():
        first, second = rooms(2)
        assert first.shape == (2, RECYCLED) and first.is_contiguous() and first.dtype == torch.float64
        place, part = first.data_ptr(), second.fill_(3.0)[1, 5:]
        del first, second
        (again, new) = rooms(2)
        assert again.data_ptr() == place and part.data_ptr() not in range(new.data_ptr(), new.data_ptr() + new.nbytes)
        new.fill_(4.0)
        assert (part == 3).all()  # a view holds it
        held = again.fill_(5.0)
    (other,) = rooms(1)
    other.fill_(6.0)
    assert (held == 5).all()


def test_recycled_memory_has_the_dtype_and_size_asked_for():
    with memory.recycling():
        rooms(1)
        like = torch.empty(0, dtype=torch.float32)
        assert memory.recycled_empty(like, 4, RECYCLED).dtype == torch.float32
        assert memory.recycled_empty(like, 3).shape == (3,)


HEAP = """
import os, torch
from pathlib import Path
from skiplens.base.memory import give_back

def resident():
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")

torch.ones(7 * 2**20)  # freed: from now on less than 28 MiB comes from the heap
before = resident()
held = [(torch.ones(2**20), torch.ones(2**16)) for _ in range(64)]
small = [little for _, little in held]
del held
kept = resident() - before
give_back()
print(kept, resident() - before)
"""


@pytest.mark.skipif(sys.platform != "linux" or platform.libc_ver()[0] != "glibc", reason="the allocator of glibc")
def test_freed_memory_goes_back_to_the_system():
    """What lies below something in use stays with the process else: 7 GiB after a forecast of a GPT-2."""
    told = subprocess.run([sys.executable, "-c", HEAP], capture_output=True, text=True, check=True)
    kept, left = map(int, told.stdout.split())
    assert kept > 2**27 and left < 2**26
