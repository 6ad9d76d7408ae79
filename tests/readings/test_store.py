import errno
import os
import random
import resource
import signal
import time
from pathlib import Path

import pytest
import torch

from skiplens.base.errors import InvalidInputError, SkiplensError, TooNewFileError
from skiplens.readings.file import read_file
from skiplens.readings.store import BrokenFileWarning, Store
from tests.readings.test_file import example, rewrite_header


def consistent(value: float):
    """A reading all of whose parts say the same number, so that a mixture of two is noticed."""
    return example(energy=torch.full((100, 300), value), depth=value)


def test_a_run_is_done_once(tmp_path):
    store, calls = Store(tmp_path / "runs"), []

    def measure():
        calls.append(1)
        return consistent(2.0)

    first, second = store.compute("key", measure), store.compute("key", measure)
    assert len(calls) == 1 and torch.equal(first.energy, second.energy)
    assert list(store.keys()) == ["key"]


def test_an_empty_or_absent_folder_holds_nothing(tmp_path):
    store = Store(tmp_path / "absent")
    assert list(store.keys()) == [] and store.load("key") is None
    assert not store.folder.exists()


@pytest.mark.parametrize("key", ["../up", "a/b", "", ".hidden", "x" * 200, "nul\0"])
def test_a_key_stays_inside_the_folder(tmp_path, key):
    with pytest.raises(InvalidInputError, match="cannot name a file"):
        Store(tmp_path).path(key)


def test_a_broken_file_is_set_aside_and_the_run_done_again(tmp_path):
    store = Store(tmp_path)
    store.save("key", consistent(1.0))
    path = store.path("key")
    path.write_bytes(path.read_bytes()[:-100])
    with pytest.warns(BrokenFileWarning, match=r"key\.npz is not a whole .* set aside as key\.npz\.broken-"):
        again = store.compute("key", lambda: consistent(3.0))
    assert again.depth == 3.0 and store.load("key").depth == 3.0
    assert len(list(tmp_path.glob("key.npz.broken-*"))) == 1
    assert list(store.keys()) == ["key"]


def test_a_newer_file_is_neither_trusted_nor_thrown_away(tmp_path):
    store = Store(tmp_path)
    store.save("key", consistent(1.0))
    rewrite_header(store.path("key"), format_version=99)
    with pytest.raises(TooNewFileError):
        store.compute("key", lambda: consistent(3.0))
    assert store.path("key").exists()


def test_a_full_disk_leaves_the_old_file(tmp_path, monkeypatch):
    store = Store(tmp_path)
    store.save("key", consistent(1.0))

    def full(descriptor):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(SkiplensError, match=r"Could not write .*key\.npz: No space left.*Nothing was changed"):
        store.save("key", consistent(2.0))
    assert store.load("key").depth == 1.0
    assert [p.name for p in tmp_path.iterdir()] == ["key.npz"]


def test_a_folder_that_is_a_file_is_reported(tmp_path):
    (tmp_path / "file").write_text("x")
    with pytest.raises(SkiplensError, match="Could not write"):
        Store(tmp_path / "file").save("key", consistent(1.0))


def in_child(work) -> int:
    """Run `work` in a forked process (quick, and torch is already loaded) and return its id."""
    child = os.fork()
    if child == 0:
        try:
            work()
        finally:
            os._exit(0)
    return child


def save_for_ever(folder: Path) -> None:
    value = 0.0
    while True:
        value += 1.0
        Store(folder).save("key", consistent(value))


def save_up_to(folder: Path, value: float, size: int) -> None:
    """Save, in a process that the system kills when its file would have more than `size` bytes."""
    signal.signal(signal.SIGXFSZ, signal.SIG_DFL)  # Python would make an OSError of it
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, size))
    Store(folder).save("key", consistent(value))


@pytest.mark.parametrize("times", [20, pytest.param(100, marks=pytest.mark.slow)])
def test_a_writer_that_is_killed_at_any_byte_leaves_the_old_file(tmp_path, seed, times):
    draw = random.Random(seed)
    Store(tmp_path).save("key", consistent(0.0))
    path = Store(tmp_path).path("key")
    for value in range(1, times + 1):
        child = in_child(lambda: save_up_to(tmp_path, float(value), draw.randrange(path.stat().st_size)))  # noqa: B023
        _, status = os.waitpid(child, 0)
        assert os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGXFSZ
        assert list(tmp_path.glob(".*.part"))
        reading = read_file(path)  # raises if it is not whole
        assert (reading.energy == reading.depth).all() and reading.depth == 0.0
        for leftover in tmp_path.glob(".*.part"):
            leftover.unlink()


def test_killing_a_writer_at_any_time_never_leaves_half_a_file(tmp_path, seed):
    draw = random.Random(seed)
    Store(tmp_path).save("key", consistent(0.0))
    for _ in range(20):
        child = in_child(lambda: save_for_ever(tmp_path))
        time.sleep(draw.uniform(0.001, 0.03))
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        reading = read_file(Store(tmp_path).path("key"))  # raises if it is not whole
        assert (reading.energy == reading.depth).all()


def test_many_writers_on_one_folder(tmp_path):
    def write_all(offset: int) -> None:
        for index in range(20):
            Store(tmp_path).save(f"key-{index}", consistent(float(offset)))

    children = [in_child(lambda offset=offset: write_all(offset)) for offset in range(4)]
    for child in children:
        os.waitpid(child, 0)
    store = Store(tmp_path)
    assert len(list(store.keys())) == 20
    for key in store.keys():
        reading = store.load(key)
        assert (reading.energy == reading.depth).all() and reading.depth in range(4)
    assert not list(tmp_path.glob(".*.part"))
