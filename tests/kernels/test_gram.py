import errno
import json
import os
import shutil
import signal
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from skiplens.base import optional_imports
from skiplens.base.errors import (
    BrokenFileError,
    InvalidInputError,
    MissingDependencyError,
    SkiplensError,
    TooLargeError,
)
from skiplens.base.optional_imports import optional_import
from skiplens.kernels.architectures import DenseNetKernel, ResNetKernel
from skiplens.kernels.gram import TilePlan, gram
from skiplens.tangent.empirical import empirical_ntk

gram_module = sys.modules[gram.__module__]  # the package has a function of the same name

KERNEL = ResNetKernel(5, 2, 0.5)
SMALL = 2**17  # bytes: tiles of 32 × 32
FINGERPRINT = "a473fac96e37e99ee580162bd3e5c0a182def3ef4ebbf2eeb65a4f4e95cf5ea7"


@pytest.fixture
def X(generator):
    return torch.randn(70, 4, generator=generator)


def dense(matrix):
    return matrix if isinstance(matrix, torch.Tensor) else torch.as_tensor(np.array(matrix))


@given(rows=st.integers(1, 50), columns=st.integers(1, 50), side=st.integers(1, 20), symmetric=st.booleans())
def test_tiles_cover_every_entry_once(rows, columns, side, symmetric):
    columns = rows if symmetric else columns
    seen = np.zeros((rows, columns), dtype=int)
    for top, left in TilePlan(rows, columns, side, symmetric).tiles():
        seen[top, left] += 1
        if symmetric and top != left:
            seen[left, top] += 1
    assert (seen == 1).all()


@pytest.mark.parametrize("end", [None, ".npy", ".zarr"])
@pytest.mark.parametrize("other", [False, True])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_every_destination_holds_the_kernel_matrix(X, tmp_path, end, other, dtype):
    X = X.to(dtype)
    Y = X[:40] * 2 if other else None
    out = None if end is None else tmp_path / f"gram{end}"
    memory = SMALL + (70 * 70 * X.element_size() if end is None else 0)
    found = dense(gram(KERNEL.ntk, X, Y, out=out, memory=memory))
    assert found.dtype == dtype
    tolerance = {torch.float32: 1e-5, torch.float64: 1e-12}[dtype]
    torch.testing.assert_close(found, KERNEL.ntk(X, Y), rtol=0, atol=tolerance * float(KERNEL.diagonal(X).max()) * 2)
    assert other or torch.equal(found, found.T)


@pytest.fixture
def written(monkeypatch):
    """The places of all tiles that were written; a place "stop" there ends the run before the next one."""
    places, write = [], gram_module.write_tile

    def counting(matrix, place, tile, symmetric):
        if len(places) == counting.most:
            raise KilledError
        write(matrix, place, tile, symmetric)
        places.append(place)

    counting.most = -1
    places_of = SimpleNamespace(places=places, stop_after=lambda most: setattr(counting, "most", most))
    monkeypatch.setattr(gram_module, "write_tile", counting)
    return places_of


class KilledError(Exception):
    """Stands for the end of a process."""


@pytest.mark.parametrize("end", [".npy", ".zarr"])
def test_a_killed_run_goes_on_with_the_tiles_that_are_missing(X, tmp_path, end, written):
    out = tmp_path / f"gram{end}"
    written.stop_after(4)
    with pytest.raises(KilledError):
        gram(KERNEL.ntk, X, out=out, memory=SMALL)
    written.stop_after(-1)
    found = gram(KERNEL.ntk, X, out=out, memory=SMALL)
    assert len(written.places) == 6  # 70 rows in tiles of 32: six tiles on and above the diagonal
    torch.testing.assert_close(dense(found), KERNEL.ntk(X))
    gram(KERNEL.ntk, X, out=out, memory=SMALL)  # finished: nothing is computed again
    assert len(written.places) == 6


@pytest.mark.parametrize("end", [".npy", ".zarr"])
def test_of_several_on_one_path_one_computes_and_all_have_the_matrix(X, tmp_path, end, written):
    pytest.importorskip("fcntl")
    start = threading.Barrier(4)

    def go():
        start.wait()
        return dense(gram(KERNEL.ntk, X, out=tmp_path / f"gram{end}", memory=SMALL))

    with ThreadPoolExecutor(4) as pool:
        found = [each.result() for each in [pool.submit(go) for _ in range(4)]]
    assert len(written.places) == 6
    assert all(torch.equal(each, found[0]) for each in found)
    assert sorted(path.name for path in tmp_path.iterdir()) == [f"gram{end}", f"gram{end}.tiles"]


@pytest.mark.slow
def test_a_process_killed_while_the_zarr_store_is_made_is_no_obstacle(X, tmp_path):
    script = f"""
import os, signal, torch, zarr
from pathlib import Path
from skiplens.kernels import ResNetKernel, gram
def killed(path, **options):
    Path(path).mkdir()
    os.kill(os.getpid(), signal.SIGKILL)
zarr.create_array = killed
gram(ResNetKernel(5, 2, 0.5).ntk, torch.ones(3, 4), out={str(tmp_path / "gram.zarr")!r})
"""
    killed = subprocess.run([sys.executable, "-c", script], capture_output=True, encoding="utf-8", timeout=600)
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    torch.testing.assert_close(dense(gram(KERNEL.ntk, X, out=tmp_path / "gram.zarr")), KERNEL.ntk(X))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["gram.zarr", "gram.zarr.tiles"]


def test_an_empty_folder_where_a_store_was_to_be_is_no_obstacle(X, tmp_path):
    (tmp_path / "gram.zarr").mkdir()  # as versions before 0.2.0 left it
    torch.testing.assert_close(dense(gram(KERNEL.ntk, X, out=tmp_path / "gram.zarr")), KERNEL.ntk(X))


@pytest.mark.parametrize("end", [".npy", ".zarr"])
def test_a_damaged_matrix_is_told(X, tmp_path, end):
    out = tmp_path / f"gram{end}"
    gram(KERNEL.ntk, X, out=out)
    damaged = out if end == ".npy" else out / "zarr.json"
    damaged.write_bytes(damaged.read_bytes()[:7])
    with pytest.raises(BrokenFileError, match=rf"gram\{end} is damaged .* Delete it and gram\{end}\.tiles"):
        gram(KERNEL.ntk, X, out=out)


def _functions():
    """Pairs of functions of which the second has other values, though their names are the same."""
    first, second = nn.Linear(4, 2, bias=False), nn.Linear(4, 2, bias=False)

    def times(factor):
        return lambda A, B=None: factor * KERNEL.ntk(A, B)

    def of_net(net):
        return lambda A, B=None: net(A) @ net(A if B is None else B).T

    class Own:
        def __init__(self, factor):
            self.factor = torch.tensor(factor)

        def __call__(self, A, B=None):
            return self.factor * KERNEL.ntk(A, B)

    def scaled(A, B=None, factor=1.0):
        return factor * KERNEL.ntk(A, B)

    lambdas = (lambda A, B=None: KERNEL.ntk(A, B), lambda A, B=None: KERNEL.nngp(A, B))
    return {
        "lambda": lambdas,
        "constant": (lambda A, B=None: 2 * KERNEL.ntk(A, B), lambda A, B=None: 3 * KERNEL.ntk(A, B)),
        "closure": (times(1.0), times(1.5)),
        "partial": (partial(scaled, factor=1.0), partial(scaled, factor=1.5)),
        "network": (of_net(first), of_net(second)),
        "object": (Own(1.0), Own(1.00001)),
        "learned": (
            ResNetKernel(5, 2, torch.tensor(0.5, requires_grad=True)).ntk,
            ResNetKernel(5, 2, torch.tensor(0.500001, requires_grad=True)).ntk,
        ),
    }


@pytest.mark.parametrize("kind", _functions())
def test_another_function_of_the_same_name_does_not_continue(X, tmp_path, kind):
    first, second = _functions()[kind]
    whole = dense(gram(first, X, out=tmp_path / "gram.npy"))
    assert torch.equal(dense(gram(first, X, out=tmp_path / "gram.npy")), whole)
    with pytest.raises(InvalidInputError, match="begun with another kernel or other inputs"):
        gram(second, X, out=tmp_path / "gram.npy")


@pytest.mark.parametrize("end", [None, ".npy"])
def test_a_function_of_two_sets_of_inputs_needs_no_third_case(X, tmp_path, end):
    found = gram(lambda A, B: A @ B.T, X, out=None if end is None else tmp_path / "gram.npy", memory=10 * SMALL)
    torch.testing.assert_close(dense(found), X @ X.T)


@pytest.mark.parametrize("end", [".npy", ".zarr"])
def test_a_function_that_fails_at_once_leaves_nothing(X, tmp_path, end):
    out = tmp_path / f"gram{end}"
    with pytest.raises(ZeroDivisionError):
        gram(lambda A, B=None: A / 0 + 1 // 0, X, out=out)
    assert [path for path in tmp_path.iterdir() if not path.name.endswith(".lock")] == []
    assert torch.equal(dense(gram(KERNEL.ntk, X, out=out)), gram(KERNEL.ntk, X))


def test_a_network_that_was_changed_does_not_continue(X, tmp_path):
    net = nn.Linear(4, 2)
    kernel = partial(lambda A, B=None: empirical_ntk(net, A, B))
    gram(kernel, X, out=tmp_path / "gram.npy")
    with torch.no_grad():
        net.bias[0] += 1
    with pytest.raises(InvalidInputError, match="begun with another kernel or other inputs"):
        gram(kernel, X, out=tmp_path / "gram.npy")


def test_a_function_that_cannot_be_told_from_others_is_refused(X, tmp_path):
    lock = threading.Lock()

    def guarded(A, B=None):
        with lock:
            return KERNEL.ntk(A, B)

    with pytest.raises(
        InvalidInputError, match=r"cannot be told whether '.*guarded' is the same .* Leave the path out"
    ):
        gram(guarded, X, out=tmp_path / "gram.npy")
    assert torch.equal(gram(guarded, X), gram(KERNEL.ntk, X)) and list(tmp_path.iterdir()) == []


def test_a_tile_that_was_not_marked_is_computed_again(X, tmp_path):
    out = tmp_path / "gram.npy"
    gram(KERNEL.ntk, X, out=out, memory=SMALL)
    written = np.lib.format.open_memmap(out, mode="r+")
    written[:32, :32] = -1
    journal = tmp_path / "gram.npy.tiles"
    content = json.loads(journal.read_text())
    content["done"] = f"{int(content['done'], 16) & ~1:x}"
    journal.write_text(json.dumps(content))
    with pytest.raises(BrokenFileError, match="its checksum is wrong"):
        gram(KERNEL.ntk, X, out=out, memory=SMALL)
    del content["checksum"]  # as it was before version 0.2
    journal.write_text(json.dumps(content))
    found = gram(KERNEL.ntk, X, out=out, memory=10 * SMALL)  # another budget does not move the tiles
    torch.testing.assert_close(dense(found), KERNEL.ntk(X))


def test_progress_is_told(X):
    told = []
    gram(KERNEL.nngp, X, memory=SMALL + 70 * 70 * 8, progress=lambda *step: told.append(step))
    assert told[0] == ("kernel matrix", 0, 6) and told[-1] == ("kernel matrix", 6, 6)


def test_other_inputs_or_another_kernel_do_not_continue(X, tmp_path):
    gram(KERNEL.ntk, X, out=tmp_path / "gram.npy")
    for kernel, inputs in ((KERNEL.ntk, X + 1), (KERNEL.nngp, X), (DenseNetKernel(3).ntk, X)):
        with pytest.raises(InvalidInputError, match=r"begun with another kernel or other inputs.*Delete"):
            gram(kernel, inputs, out=tmp_path / "gram.npy")


def test_a_file_of_somebody_else_is_not_overwritten(X, tmp_path):
    (tmp_path / "gram.npy").write_text("precious")
    with pytest.raises(InvalidInputError, match=r"gram\.npy exists and has no gram\.npy\.tiles beside it"):
        gram(KERNEL.ntk, X, out=tmp_path / "gram.npy")
    assert (tmp_path / "gram.npy").read_text() == "precious"


def test_a_deleted_matrix_is_computed_again(X, tmp_path):
    gram(KERNEL.ntk, X, out=tmp_path / "gram.npy")
    (tmp_path / "gram.npy").unlink()
    torch.testing.assert_close(dense(gram(KERNEL.ntk, X, out=tmp_path / "gram.npy")), KERNEL.ntk(X))


def test_a_damaged_journal_is_told(X, tmp_path):
    gram(KERNEL.ntk, X, out=tmp_path / "gram.npy")
    (tmp_path / "gram.npy.tiles").write_text('{"side": 3')
    with pytest.raises(BrokenFileError, match=r"gram\.npy\.tiles is damaged .* Delete it"):
        gram(KERNEL.ntk, X, out=tmp_path / "gram.npy")


def test_paths_that_cannot_be_written_are_refused_and_leave_nothing(X, tmp_path):
    with pytest.raises(InvalidInputError, match=r"ends in \.npy or \.zarr, got 'gram\.csv'"):
        gram(KERNEL.ntk, X, out=tmp_path / "gram.csv")
    with pytest.raises(InvalidInputError, match=r"The folder .* does not exist"):
        gram(KERNEL.ntk, X, out=tmp_path / "missing" / "gram.npy")
    assert list(tmp_path.iterdir()) == []


def test_a_full_disk_is_told_before_anything_is_written(X, tmp_path, monkeypatch):
    class Usage:
        free = 8 * 60 * 60

    monkeypatch.setattr(shutil, "disk_usage", lambda folder: Usage)
    with pytest.raises(TooLargeError, match=r"70 × 70 entries needs .* on the disk.*About 60 rows and columns"):
        gram(KERNEL.ntk, X, out=tmp_path / "gram.npy")
    assert list(tmp_path.iterdir()) == []


def test_a_disk_without_room_is_one_clear_error_and_leaves_nothing(X, tmp_path, monkeypatch):
    def full(file, start, length):
        assert length >= 70 * 70 * 8
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "posix_fallocate", full, raising=False)
    with pytest.raises(SkiplensError, match=r"no room for gram\.npy, .* on the disk: No space left .* free some space"):
        gram(KERNEL.ntk, X, out=tmp_path / "gram.npy")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
def test_a_disk_that_is_really_full_does_not_end_the_process(tmp_path):
    script = f"""
import shutil, torch
from types import SimpleNamespace
from skiplens.kernels import ResNetKernel, gram
shutil.disk_usage = lambda folder: SimpleNamespace(free=2**30)  # it was free a moment ago
gram(ResNetKernel(5, 2, 0.5).ntk, torch.randn(600, 4), out={str(tmp_path / "gram.npy")!r})
"""
    mount = f'mount -t tmpfs -o size=1m tmpfs {tmp_path} && exec {sys.executable} -c "$0"'
    if (
        not shutil.which("unshare")
        or subprocess.run(["unshare", "-rm", "mount", "-t", "tmpfs", "x", tmp_path]).returncode
    ):
        pytest.skip("this system does not allow a small disk to be made")
    done = subprocess.run(["unshare", "-rm", "sh", "-c", mount, script], capture_output=True, encoding="utf-8")
    assert done.returncode == 1 and "There is no room for gram.npy" in done.stderr, (done.returncode, done.stderr)


def test_a_tile_that_cannot_be_written_is_told(X, tmp_path, monkeypatch):
    def full(array, place, values):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(optional_import("zarr", "a test").Array, "__setitem__", full)
    with pytest.raises(SkiplensError, match=r"A tile could not be written: No space left .* are kept"):
        gram(KERNEL.ntk, X, out=tmp_path / "gram.zarr")


def test_a_matrix_larger_than_the_budget_is_refused_with_the_size_that_fits(X):
    with pytest.raises(
        TooLargeError, match=r"70 × 70 entries in memory needs .* About 35 × 35 would fit; .*\.npy or \.zarr"
    ):
        gram(KERNEL.ntk, X, memory=8 * 35 * 35)


def test_the_old_name_of_the_memory_is_deprecated(X):
    with pytest.warns(DeprecationWarning, match=r"is now gram\(memory="):
        torch.testing.assert_close(gram(KERNEL.ntk, X, budget=2**20), KERNEL.ntk(X))


def test_stores_of_earlier_versions_are_continued(tmp_path):
    """The journal and the fingerprint are those that version 0.1.0 wrote."""
    X = torch.arange(12, dtype=torch.float64).view(4, 3)
    np.save(tmp_path / "gram.npy", np.full((4, 4), 7.0))
    old = {"fingerprint": FINGERPRINT, "side": 2, "done": "5"}  # the tiles 0 and 2 of three
    (tmp_path / "gram.npy.tiles").write_text(json.dumps(old))
    found = dense(gram(DenseNetKernel(3).ntk, X, out=tmp_path / "gram.npy"))
    assert (found[:2, :2] == 7).all() and (found[2:, 2:] == 7).all()
    torch.testing.assert_close(found[:2, 2:], DenseNetKernel(3).ntk(X)[:2, 2:])


def test_a_budget_below_the_smallest_tile_is_refused(X, tmp_path):
    with pytest.raises(TooLargeError, match=r"tile of 16 × 16 entries, the smallest there is, needs .* larger budget"):
        gram(KERNEL.ntk, X, out=tmp_path / "gram.npy", memory=1000)


def test_wrong_inputs_are_refused_before_anything_is_written(X, tmp_path):
    X[3] = float("nan")
    with pytest.raises(InvalidInputError, match="NaN"):
        gram(KERNEL.ntk, X, out=tmp_path / "gram.npy")
    assert list(tmp_path.iterdir()) == []


def test_without_zarr_the_package_is_named(X, tmp_path, monkeypatch):
    def missing(name):
        raise ImportError(f"No module named {name!r}")

    monkeypatch.setattr(optional_imports.importlib, "import_module", missing)
    with pytest.raises(MissingDependencyError, match=r"zarr is needed for writing.*skiplens\[chunked\]"):
        gram(KERNEL.ntk, X, out=tmp_path / "gram.zarr")
    assert list(tmp_path.iterdir()) == []


@given(seed=st.integers(0, 2**31), samples=st.integers(1, 60), extra=st.integers(0, 2**18))
@settings(max_examples=15)
def test_the_size_of_tiles_does_not_change_a_value(seed, samples, extra):
    X = torch.randn(samples, 3, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    found = gram(KERNEL.ntk, X, memory=samples * samples * 8 + SMALL // 4 + extra)
    torch.testing.assert_close(found, KERNEL.ntk(X), rtol=1e-11, atol=1e-12)
