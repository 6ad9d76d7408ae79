import errno
import os
import threading
import time

import pytest

from skiplens.base.errors import DataError
from skiplens.base.files import file_lock
from skiplens.data.download import cache_folder, cached, explain_os_errors, fill
from tests.data.toy import ToyDigits, write_all

DIGITS = ToyDigits.data_set()
PAIRS = [(part, ToyDigits.contents[part.name]) for part in DIGITS.parts]


def names(folder):
    return sorted(entry.name for entry in folder.iterdir())


def test_a_filled_cache_reads_back(tmp_path):
    fill(DIGITS, PAIRS, tmp_path / "toy")
    assert cached(DIGITS.train, tmp_path / "toy") == list(ToyDigits.contents.values())[:2]
    assert names(tmp_path) == ["toy"]


def test_an_error_half_way_leaves_nothing(tmp_path):
    def breaks_off():
        yield PAIRS[0]
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fill(DIGITS, breaks_off(), tmp_path / "toy")
    assert names(tmp_path) == []


def test_a_wrong_part_is_refused_and_leaves_nothing(tmp_path):
    wrong = [(part, content[:-1] + bytes([content[-1] ^ 1])) for part, content in PAIRS]
    with pytest.raises(DataError, match="train-images-idx3-ubyte as it came has the wrong checksum"):
        fill(DIGITS, wrong, tmp_path / "toy")
    assert names(tmp_path) == []


def test_a_missing_part_is_named(tmp_path):
    with pytest.raises(DataError, match="What came for toy-digits does not hold t10k-labels-idx1-ubyte"):
        fill(DIGITS, PAIRS[:-1], tmp_path / "toy")
    assert names(tmp_path) == []


def test_a_damaged_cache_counts_as_empty_and_is_replaced(tmp_path):
    fill(DIGITS, PAIRS, tmp_path / "toy")
    (tmp_path / "toy" / "train-labels-idx1-ubyte").write_bytes(b"damaged")
    assert cached(DIGITS.train, tmp_path / "toy") is None
    fill(DIGITS, PAIRS, tmp_path / "toy")
    assert cached(DIGITS.train, tmp_path / "toy") is not None


def test_an_incomplete_cache_counts_as_empty(tmp_path):
    write_all(tmp_path, {"train-images-idx3-ubyte": ToyDigits.contents["train-images-idx3-ubyte"]})
    assert cached(DIGITS.train, tmp_path) is None


def test_the_folder_is_the_users_choice_or_the_systems(monkeypatch, tmp_path):
    monkeypatch.setenv("SKIPLENS_CACHE", str(tmp_path))
    assert cache_folder() == tmp_path / "data"
    monkeypatch.delenv("SKIPLENS_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    assert cache_folder().name == "data" and cache_folder().parent.name == "skiplens"


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT])
def test_a_full_disk_is_explained(tmp_path, number):
    with (
        pytest.raises(DataError, match=r"No space left in .* for toy-digits, which needs about .* SKIPLENS_CACHE"),
        explain_os_errors(DIGITS, tmp_path),
    ):
        raise OSError(number, os.strerror(number))


def test_a_forbidden_folder_is_explained(tmp_path):
    with (
        pytest.raises(DataError, match=r"The cache folder .* cannot be written \(Permission denied\).*SKIPLENS_CACHE"),
        explain_os_errors(DIGITS, tmp_path),
    ):
        raise PermissionError(errno.EACCES, "Permission denied")


def test_other_errors_of_the_system_pass(tmp_path):
    with pytest.raises(InterruptedError), explain_os_errors(DIGITS, tmp_path):
        raise InterruptedError(errno.EINTR, "interrupted")


def test_one_holder_at_a_time_gets_through(tmp_path):
    pytest.importorskip("fcntl")
    log: list[str] = []

    def enter(who):
        with file_lock(tmp_path / "lock"):
            log.append(who)
            time.sleep(0.01)  # gives the others every chance to come in between
            log.append(who)

    threads = [threading.Thread(target=enter, args=(who,)) for who in "abcd"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert log[0::2] == log[1::2] and sorted(log[0::2]) == list("abcd")
    assert not (tmp_path / "lock").exists()
