import pytest

from skiplens.base.errors import DataError
from skiplens.data.catalogue import DataSet
from skiplens.data.fetch import find, holds, user_folder
from tests.data.toy import ToyColours, ToyDigits, gzipped, part_of, tarred, write_all

DIGITS, COLOURS = ToyDigits.data_set(), ToyColours.data_set()
PACKED = {f"{name}.gz": gzipped(content) for name, content in ToyDigits.contents.items()}


@pytest.mark.parametrize("place", [".", "toy-digits"])
@pytest.mark.parametrize("files", [ToyDigits.contents, PACKED], ids=["plain", "gz"])
def test_files_are_found_in_the_folder_or_in_one_named_after_the_set(tmp_path, place, files):
    write_all(tmp_path / place, files)
    assert find(DIGITS, DIGITS.test, tmp_path) == list(ToyDigits.contents.values())[2:]
    assert holds(DIGITS, tmp_path)


def test_the_authors_archive_is_read_as_it_is(tmp_path):
    (tmp_path / "toy-binary.tar.gz").write_bytes(tarred(ToyColours.contents))
    assert find(COLOURS, COLOURS.train, tmp_path) == list(ToyColours.contents.values())[:2]
    assert holds(COLOURS, tmp_path)


def test_nothing_there_is_no_error(tmp_path):
    assert find(DIGITS, DIGITS.train, tmp_path) is None and not holds(DIGITS, tmp_path)


def test_a_half_set_is_named(tmp_path):
    write_all(tmp_path, {"train-images-idx3-ubyte": ToyDigits.contents["train-images-idx3-ubyte"]})
    with pytest.raises(DataError, match="holds a part of toy-digits but not train-labels-idx1-ubyte"):
        find(DIGITS, DIGITS.train, tmp_path)


def test_a_wrong_file_is_named_with_both_checksums(tmp_path):
    folder = write_all(tmp_path, ToyDigits.contents)
    content = ToyDigits.contents["train-images-idx3-ubyte"]
    (folder / "train-images-idx3-ubyte").write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
    with pytest.raises(DataError, match=r"train-images-idx3-ubyte has the wrong checksum: its SHA-256 is .*, wanted"):
        find(DIGITS, DIGITS.train, tmp_path)


def test_a_truncated_file_is_named(tmp_path):
    folder = write_all(tmp_path, ToyDigits.contents)
    (folder / "train-images-idx3-ubyte").write_bytes(ToyDigits.contents["train-images-idx3-ubyte"][:-1])
    with pytest.raises(DataError, match="train-images-idx3-ubyte is truncated"):
        find(DIGITS, DIGITS.train, tmp_path)


def test_an_archive_without_the_files_is_named(tmp_path):
    (tmp_path / "toy-binary.tar.gz").write_bytes(tarred({"data_batch_1.bin": ToyColours.contents["data_batch_1.bin"]}))
    with pytest.raises(DataError, match=r"does not hold data_batch_2.bin; is it the binary version\?"):
        find(COLOURS, COLOURS.train, tmp_path)


def test_files_of_a_twin_with_the_same_names_are_passed_over(tmp_path, known):
    other = {name: bytes(len(content)) for name, content in ToyDigits.contents.items()}
    parts = tuple(part_of(name, content) for name, content in other.items())
    known(DataSet("twin", DIGITS.classes, DIGITS.shape, parts[:2], parts[2:], ()))
    write_all(tmp_path, other)
    assert find(DIGITS, DIGITS.train, tmp_path) is None


def test_the_folder_comes_from_the_argument_then_from_the_environment(tmp_path, monkeypatch):
    assert user_folder(None) is None
    monkeypatch.setenv("SKIPLENS_DATA", str(tmp_path))
    (tmp_path / "mine").mkdir()
    assert user_folder(None) == tmp_path and user_folder(tmp_path / "mine") == tmp_path / "mine"


def test_a_folder_that_is_not_there_is_named(tmp_path, monkeypatch):
    with pytest.raises(DataError, match=r"root names the data folder .*nowhere, which is not a folder"):
        user_folder(tmp_path / "nowhere")
    monkeypatch.setenv("SKIPLENS_DATA", str(tmp_path / "gone"))
    with pytest.raises(DataError, match=r"SKIPLENS_DATA names the data folder .*gone, which is not a folder"):
        user_folder(None)
