import json
import zipfile
from dataclasses import dataclass

import numpy as np
import pytest
import torch

from skiplens.base.errors import BrokenFileError, InvalidInputError, SkiplensError, TooNewFileError
from skiplens.readings.file import read_file, write_file
from skiplens.readings.reading import Provenance, Reading


@dataclass(frozen=True, kw_only=True, eq=False)
class Example(Reading, kind="test-example"):
    energy: torch.Tensor
    by_block: dict[str, torch.Tensor]
    names: tuple[str, ...] = ()
    depth: float = 0.0
    nested: tuple[dict, ...] = ()
    added_later: int = 7


def example(**changes) -> Example:
    values = {
        "energy": torch.arange(6.0).reshape(2, 3),
        "by_block": {"a/b.0": torch.ones(2, dtype=torch.float32), "../x": torch.tensor([True, False])},
        "names": ("α", "b"),
        "depth": float("inf"),
        "nested": ({"one": torch.tensor(1)}, {"two": None}),
    }
    provenance = Provenance.begin({"depth": 3}, seed=1).end()
    return Example(**(values | changes), provenance=provenance)


def test_round_trip_keeps_every_bit(tmp_path):
    reading = example()
    write_file(tmp_path / "a.npz", reading)
    back = read_file(tmp_path / "a.npz")
    assert isinstance(back, Example)
    assert back.provenance == reading.provenance
    assert back.names == reading.names and back.depth == reading.depth
    assert torch.equal(back.energy, reading.energy) and back.energy.dtype == torch.float64
    assert back.by_block.keys() == reading.by_block.keys()
    assert all(torch.equal(back.by_block[k], v) for k, v in reading.by_block.items())
    assert back.nested[0]["one"] == 1 and back.nested[1] == {"two": None}


def test_numpy_opens_the_arrays_too(tmp_path):
    write_file(tmp_path / "a.npz", example())
    with np.load(tmp_path / "a.npz") as archive:
        assert any(name.endswith("energy") and archive[name].shape == (2, 3) for name in archive.files)


def test_readings_are_frozen_detached_and_on_the_cpu():
    reading = example(energy=torch.ones(2, requires_grad=True) * 2)
    assert not reading.energy.requires_grad and reading.energy.device.type == "cpu"
    with pytest.raises(AttributeError):
        reading.depth = 3.0


def test_what_a_file_cannot_hold_is_refused_at_once():
    with pytest.raises(InvalidInputError, match=r"Example.names is a object; a reading holds tensors"):
        example(names=object())


def rewrite_header(path, **changes):
    with zipfile.ZipFile(path) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    header = json.loads(members["reading.json"]) | changes
    members["reading.json"] = json.dumps(header).encode()
    with zipfile.ZipFile(path, "w") as archive:
        for name, content in members.items():
            archive.writestr(name, content)


@pytest.mark.parametrize("change", [{"format_version": 99}, {"kind_version": 2}, {"kind": "of-tomorrow"}])
def test_a_file_from_a_newer_skiplens_says_so(tmp_path, change):
    path = tmp_path / "a.npz"
    write_file(path, example())
    rewrite_header(path, **change)
    with pytest.raises(TooNewFileError, match=r"a\.npz holds a .* newer than this one. Upgrade with"):
        read_file(path)


def test_a_file_from_before_a_field_existed_takes_its_default(tmp_path):
    path = tmp_path / "a.npz"
    write_file(path, example(added_later=3))
    with zipfile.ZipFile(path) as archive:
        values = json.loads(archive.read("reading.json"))["values"]
    del values["added_later"]
    rewrite_header(path, values=values)
    assert read_file(path).added_later == 7


@pytest.mark.parametrize("share", [0.0, 0.1, 0.5, 0.9, 0.999])
def test_a_truncated_file_is_told_from_a_good_one(tmp_path, share):
    path = tmp_path / "a.npz"
    write_file(path, example())
    content = path.read_bytes()
    path.write_bytes(content[: int(len(content) * share)])
    with pytest.raises(BrokenFileError, match=r"a\.npz is not a whole Skiplens reading"):
        read_file(path)


def test_no_flipped_byte_changes_a_value_unnoticed(tmp_path):
    path = tmp_path / "a.npz"
    reading = example()
    write_file(path, reading)
    content = path.read_bytes()
    for position in range(len(content)):
        damaged = bytearray(content)
        damaged[position] ^= 0x55
        path.write_bytes(damaged)
        try:
            back = read_file(path)
        except SkiplensError:
            continue
        assert torch.equal(back.energy, reading.energy)
        assert back.names == reading.names and back.provenance == reading.provenance


@pytest.mark.parametrize("content", [b"", b"hello", b"PK\x03\x04", b"\x80\x04."])
def test_a_foreign_file_is_named(tmp_path, content):
    path = tmp_path / "foreign.npz"
    path.write_bytes(content)
    with pytest.raises(BrokenFileError, match=r"foreign\.npz is not a whole Skiplens reading"):
        read_file(path)


def test_a_pickled_array_is_never_loaded(tmp_path):
    """An object array needs pickle; pickle would run code."""
    path = tmp_path / "a.npz"
    write_file(path, example())
    with zipfile.ZipFile(path) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}

    class Bomb:
        def __reduce__(self):
            return (exec, ("raise SystemExit('code was executed')",))

    victim = next(name for name in members if "energy" in name)
    np.save(tmp_path / "bomb.npy", np.array([Bomb()], dtype=object), allow_pickle=True)
    members[victim] = (tmp_path / "bomb.npy").read_bytes()
    with zipfile.ZipFile(path, "w") as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    with pytest.raises(BrokenFileError, match="allow_pickle=False"):
        read_file(path)


def test_two_kinds_cannot_share_a_name():
    with pytest.raises(TypeError, match="Two kinds of reading are called 'test-example'"):

        class Other(Reading, kind="test-example"):
            pass
