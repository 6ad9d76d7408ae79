"""Gram matrices by workers: the numbers of one process, resumed after a failure, refused where they cannot be had."""

from collections.abc import Iterator

import numpy as np
import pytest
import torch

from skiplens.base.errors import InvalidInputError, SkiplensError
from skiplens.kernels.architectures import DenseNetKernel, ResNetKernel, VanillaKernel
from skiplens.sweeps.executor import LocalWorkers, ThisProcess
from skiplens.sweeps.gram_tiles import TileOptions, described, rebuilt, spread_gram
from skiplens.sweeps.run import Failure, Outcome

KERNEL = ResNetKernel(4, 2, 0.5)
SMALL = 2**17  # tiles of 32 × 32


class Failing(ThisProcess):
    """Loses its workers after some tiles."""

    def __init__(self, good: int) -> None:
        object.__setattr__(self, "good", good)

    def outcomes(self, queue, running) -> Iterator[Outcome]:
        for number, outcome in enumerate(super().outcomes(queue, running)):
            yield outcome if number < self.good else Outcome(outcome.run, failure=Failure("the worker died."))


@pytest.fixture
def X(generator):
    return torch.randn(70, 4, generator=generator)


@pytest.mark.parametrize("quantity", ["ntk", "nngp"])
def test_the_store_holds_the_kernel_matrix(X, tmp_path, quantity):
    found = spread_gram(ThisProcess(), KERNEL, X, tmp_path / "gram.zarr", quantity=quantity, memory=SMALL)
    torch.testing.assert_close(torch.from_numpy(np.array(found)), getattr(KERNEL, quantity)(X))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["gram.zarr", "gram.zarr.tiles"]


def test_options_in_one_object_are_deprecated(X, tmp_path):
    with pytest.warns(DeprecationWarning, match="budget as memory="):
        found = spread_gram(ThisProcess(), KERNEL, X, tmp_path / "gram.zarr", TileOptions("nngp", SMALL))
    torch.testing.assert_close(torch.from_numpy(np.array(found)), KERNEL.nngp(X))


@pytest.mark.slow
def test_processes_give_the_same_matrix(X, tmp_path):
    found = spread_gram(LocalWorkers(2), KERNEL, X, tmp_path / "gram.zarr", memory=SMALL)
    torch.testing.assert_close(torch.from_numpy(np.array(found)), KERNEL.ntk(X))


def test_what_was_done_before_a_failure_is_kept(X, tmp_path):
    out, seen = tmp_path / "gram.zarr", []
    with pytest.raises(SkiplensError, match=r"failed 2 times.*the worker died.*The 4 tiles that are done are kept"):
        spread_gram(Failing(4), KERNEL, X, out, memory=SMALL)
    found = spread_gram(ThisProcess(), KERNEL, X, out, memory=SMALL, progress=lambda *step: seen.append(step))
    assert seen[-1] == ("kernel matrix", 2, 2)  # six tiles on and above the diagonal, four of them done
    torch.testing.assert_close(torch.from_numpy(np.array(found)), KERNEL.ntk(X))


def test_another_kernel_does_not_go_on(X, tmp_path):
    spread_gram(ThisProcess(), KERNEL, X, tmp_path / "gram.zarr", memory=SMALL)
    with pytest.raises(InvalidInputError, match="begun with another kernel or other inputs"):
        spread_gram(ThisProcess(), DenseNetKernel(3), X, tmp_path / "gram.zarr", memory=SMALL)


def test_a_path_that_many_cannot_write_to_is_refused(X, tmp_path):
    with pytest.raises(InvalidInputError, match=r"path that ends in \.zarr.*got 'gram\.npy'"):
        spread_gram(ThisProcess(), KERNEL, X, tmp_path / "gram.npy")


@pytest.mark.parametrize("kernel", [KERNEL, ResNetKernel(2, 2, [0.1, 0.2]), DenseNetKernel(3), VanillaKernel(2, "all")])
def test_a_kernel_is_told_in_words(kernel):
    assert rebuilt(described(kernel)) == kernel


def test_a_learned_hyper_parameter_is_refused():
    learned = ResNetKernel(2, 2, torch.tensor(0.1, requires_grad=True))
    with pytest.raises(InvalidInputError, match=r"branch_scale is a tensor.*Give branch_scale\.item\(\)"):
        described(learned)
