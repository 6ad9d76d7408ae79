"""Large new tensors: ordinary ones but for where their memory comes from."""

import copy
import gc
import mmap

import pytest
import torch

from skiplens.base import memory
from skiplens.base.memory import fresh_empty, fresh_zeros

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
