import pytest
import torch

from skiplens.base.errors import TooLargeError
from skiplens.base.memory import LEAST, budget_bytes, is_shortage, memory_retry

CUDA = torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB.")
CPU = RuntimeError("[enforce fail at alloc_cpu.cpp:118] DefaultCPUAllocator: can't allocate memory: you tried …")


class Hungry:
    """Fails until its budget is at most `fits`."""

    def __init__(self, fits: int, error: Exception) -> None:
        self.fits, self.error, self.budgets = fits, error, list[int]()

    def __call__(self) -> str:
        self.budgets.append(budget_bytes("cpu", 1024))
        if self.budgets[-1] > self.fits:
            raise self.error
        return "done"


@pytest.mark.parametrize("error", [CUDA, CPU, MemoryError()])
def test_the_budget_is_halved_until_the_work_fits(error):
    work, told = Hungry(256, error), list[float]()
    assert memory_retry(work, told.append) == "done"
    assert work.budgets == [1024, 512, 256] and told == [0.5, 0.25]
    assert budget_bytes("cpu", 1024) == 1024


def test_work_that_never_fits_is_refused_in_words():
    work = Hungry(0, CUDA)
    with pytest.raises(TooLargeError, match=r"Memory ran out, and again with 1\.6 % .* look at fewer"):
        memory_retry(work)
    assert min(work.budgets) == 1024 * LEAST


@pytest.mark.parametrize("error", [ValueError("out of memory"), RuntimeError("shapes"), TooLargeError("planned")])
def test_other_errors_are_not_tried_again(error):
    work = Hungry(0, error)
    with pytest.raises(type(error), match=str(error)):
        memory_retry(work)
    assert len(work.budgets) == 1 and not is_shortage(error)


def test_free_memory_is_halved_too(monkeypatch):
    monkeypatch.setattr("skiplens.base.memory.free_bytes", lambda device: 4096)
    budgets = list[int]()

    def work() -> None:
        budgets.append(budget_bytes())
        if len(budgets) == 1:
            raise CUDA

    memory_retry(work)
    assert budgets == [2048, 1024]
