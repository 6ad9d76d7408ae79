import errno
import sys
from pathlib import Path

import pytest
import torch

from skiplens.base.errors import DataError
from skiplens.base.files import file_lock
from skiplens.data.download import cache_folder
from skiplens.data.fetch import available, fill_cache, get, place_of
from tests.data.host import serving
from tests.data.toy import ToyColours, ToyDigits, gzipped, tarred, write_all


@pytest.fixture
def host():
    packed = {f"{name}.gz": gzipped(content) for name, content in ToyDigits.contents.items()}
    with serving(packed | {"toy-binary.tar.gz": tarred(ToyColours.contents)}) as host:
        yield host


def assert_digits(images, count=7):
    assert torch.equal(images.images[:, 0], ToyDigits.images[:count])
    assert torch.equal(images.labels, ToyDigits.labels[:count].long())


def test_the_users_folder_comes_first(tmp_path, known):
    known(ToyDigits.data_set())
    write_all(tmp_path / "mine", ToyDigits.contents)
    assert_digits(get("toy-digits", tmp_path / "mine"))
    assert not cache_folder().exists()


def test_the_environment_may_name_the_folder(tmp_path, known, monkeypatch):
    known(ToyDigits.data_set())
    monkeypatch.setenv("SKIPLENS_DATA", str(write_all(tmp_path / "mine", ToyDigits.contents)))
    assert_digits(get("toy-digits", split="test"), 3)


def test_the_authors_files_are_downloaded_once_and_cached(host, known):
    known(ToyDigits.data_set(host.url))
    assert_digits(get("toy-digits"))
    assert_digits(get("toy-digits", split="test"), 3)
    assert len(host.asked) == 4
    assert sorted(entry.name for entry in cache_folder().iterdir()) == ["toy-digits"]


def test_an_archive_of_many_files_is_downloaded(host, known):
    known(ToyColours.data_set(host.url))
    images = get("toy-colours")
    assert torch.equal(images.images, ToyColours.images[:6]) and images.classes[3] == "colour 3"


def test_an_interrupted_fetch_goes_on_where_it_stopped(host, known):
    known(ToyDigits.data_set(host.url))

    def interrupt(label, done, total):
        if label.endswith("t10k-images-idx3-ubyte.gz"):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        get("toy-digits", progress=interrupt)
    assert not (cache_folder() / "toy-digits").exists()
    asked = len(host.asked)
    assert_digits(get("toy-digits"))
    # The first two files were there; the third was whole but not yet checked, so a range beyond its end is asked for.
    assert {path for path, _ in host.asked[asked:]} == {"/t10k-images-idx3-ubyte.gz", "/t10k-labels-idx1-ubyte.gz"}


def left_by_a_kill(name):
    """What lies in the cache when a fetch is killed while it unpacks, and while it downloads."""
    for place in (f".{name}-ab12/ready/train-images-idx3-ubyte", f".arriving-{name}/tmpab12"):
        path = cache_folder() / place
        path.parent.mkdir(parents=True)
        path.write_bytes(b"half")
    unfinished = cache_folder() / f".arriving-{name}/t10k.gz.unfinished"
    unfinished.write_bytes(b"half")
    (cache_folder() / f".{name}.lock").touch()


def test_what_killed_fetches_left_is_swept_at_the_next_start(host, known):
    """Also that of a set that nobody asks for any more; what the next fetch goes on from stays."""
    pytest.importorskip("fcntl")
    known(ToyDigits.data_set(host.url))
    for name in ("toy-digits", "toy-colours"):
        left_by_a_kill(name)
    get("toy-digits")
    names = sorted(entry.name for entry in cache_folder().iterdir())
    assert names == [".arriving-toy-colours", "toy-digits"]
    assert [entry.name for entry in (cache_folder() / ".arriving-toy-colours").iterdir()] == ["t10k.gz.unfinished"]


def test_what_a_process_at_work_has_made_is_not_swept(host, known):
    pytest.importorskip("fcntl")
    known(ToyDigits.data_set(host.url))
    left_by_a_kill("toy-colours")
    with file_lock(cache_folder() / ".toy-colours.lock") as held:
        get("toy-digits")
        assert held and (cache_folder() / ".toy-colours-ab12/ready").is_dir()


def test_a_damaged_cache_is_fetched_again(host, known):
    known(ToyDigits.data_set(host.url))
    get("toy-digits")
    (cache_folder() / "toy-digits" / "train-images-idx3-ubyte").write_bytes(b"damaged")
    assert_digits(get("toy-digits"))


def test_no_network_is_answered_with_what_to_place_where(known):
    known(ToyDigits.data_set())
    with pytest.raises(DataError) as caught:
        get("toy-digits")
    message = str(caught.value)
    assert message.startswith("toy-digits is not on this machine and could not be fetched:")
    assert "http://127.0.0.1:9/train-images-idx3-ubyte.gz could not be downloaded: no netw" in message
    assert "To place it by hand" in message and "http://127.0.0.1:9/t10k-labels-idx1-ubyte.gz" in message
    assert "put them into a folder named toy-digits, and name the folder above it with SKIPLENS_DATA or root" in message
    assert [entry.name for entry in cache_folder().iterdir()] == []


def test_a_wrong_checksum_is_said(host, known):
    known(ToyDigits.data_set(host.url))
    host.files["train-images-idx3-ubyte.gz"] = b"something else"
    with pytest.raises(DataError, match=r"could not be fetched: .* has the wrong checksum"):
        get("toy-digits")
    assert not (cache_folder() / "toy-digits").exists()


def test_parts_of_another_route_are_checked_too(known):
    data_set = known(ToyDigits.data_set())
    with pytest.raises(DataError, match=r"as it came has the wrong checksum"):
        fill_cache(data_set, lambda: ((part, bytes(part.size)) for part in data_set.parts))
    assert not (cache_folder() / "toy-digits").exists()
    fill_cache(data_set, lambda: ((part, ToyDigits.contents[part.name]) for part in data_set.parts))
    assert_digits(get("toy-digits"))
    fill_cache(data_set, lambda: pytest.fail("a full cache is not filled again"))


def test_no_space_is_said_at_once_and_leaves_nothing(host, known, monkeypatch):
    known(ToyDigits.data_set(host.url))
    write = Path.write_bytes

    def full(path, content):
        write(path, content[:5])
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(Path, "write_bytes", full)
    with pytest.raises(DataError, match=r"No space left in .* for toy-digits"):
        get("toy-digits")
    names = {entry.name for entry in cache_folder().iterdir()}
    assert names == {".arriving-toy-digits"}  # whole, checked downloads are kept


def test_the_list_says_where_each_set_is(tmp_path, known, host):
    known(ToyDigits.data_set(host.url))
    rows = {row.name: row for row in available()}
    assert list(rows)[:5] == ["sample", "mnist", "fashion-mnist", "cifar10", "cifar100"]
    assert rows["sample"].place == "embedded in the package" and rows["sample"].train == 2000
    assert rows["cifar100"].place == "not fetched yet" and rows["cifar100"].classes == 100
    assert rows["toy-digits"].shape == (1, 5, 4) and rows["toy-digits"].place == "not fetched yet"
    get("toy-digits")
    assert {row.name: row.place for row in available()}["toy-digits"] == str(cache_folder() / "toy-digits")
    folder = write_all(tmp_path / "mine", ToyDigits.contents)
    assert {row.name: row.place for row in available(folder)}["toy-digits"] == str(folder)


def test_what_the_users_folder_has_is_found_where_no_cache_can_be(tmp_path, known, monkeypatch):
    known(ToyDigits.data_set())
    folder = write_all(tmp_path / "mine", ToyDigits.contents)
    monkeypatch.setenv("SKIPLENS_DATA", str(folder))
    monkeypatch.delenv("SKIPLENS_CACHE")
    monkeypatch.setitem(sys.modules, "pooch", None)
    assert place_of("toy-digits") == folder
    assert_digits(get("toy-digits"))
