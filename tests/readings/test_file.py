import json
import math
import zipfile
from collections.abc import Mapping
from dataclasses import fields
from typing import ClassVar

import numpy as np
import pytest
import torch

from skiplens.base.errors import BrokenFileError, InvalidInputError, SkiplensError, TooNewFileError
from skiplens.readings.file import from_json, read_file, to_json, write_file
from skiplens.readings.reading import KINDS, NOT_FINITE, Provenance, Reading


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


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_text_keeps_every_bit_of_short_numbers_in_few_digits(dtype):
    energy = torch.randn(2000, generator=torch.Generator().manual_seed(0), dtype=torch.float64).exp().to(dtype)
    content = json.loads(json.dumps(to_json(example(energy=energy))))
    assert torch.equal(from_json(content).energy, energy)
    assert max(len(f"{entry!r}") for entry in content["values"]["energy"]["values"]) <= 12


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


class Lacking(Reading, kind="test-lacking"):
    may_lack: ClassVar[Mapping[str, str]] = {"rate": "no step was tried", "rows": "the layer has no weights"}

    rate: float
    loss: float
    pair: tuple[float, float]
    rows: torch.Tensor
    named: dict[str, torch.Tensor]


def lacking(hole: float = math.nan) -> Lacking:
    rows = torch.tensor([[1.5, hole], [math.inf, -0.0]])
    return Lacking(rate=hole, loss=hole, pair=(0.25, hole), rows=rows, named={"a": rows.float(), "b": torch.arange(2)})


def same(left, right) -> bool:
    if isinstance(left, torch.Tensor):
        return left.dtype == right.dtype and torch.equal(left.nan_to_num(7.0), right.nan_to_num(7.0))
    if isinstance(left, dict):
        return left.keys() == right.keys() and all(same(left[name], right[name]) for name in left)
    if isinstance(left, tuple):
        return len(left) == len(right) and all(map(same, left, right))
    return left == right or (left != left and right != right)


def test_an_absence_has_a_reason():
    assert lacking().absences == {
        "rate": "no step was tried",
        "rows": "the layer has no weights",
        **dict.fromkeys(("loss", "pair", "named"), NOT_FINITE),
    }
    assert lacking(1.0).absences == {}


def test_files_hold_reasons_and_no_nan(tmp_path):
    reading, path = lacking(), tmp_path / "a.npz"
    content = to_json(reading)
    text = json.dumps(content, allow_nan=False)
    assert '"nan"' not in text.lower() and content["values"]["rate"] == {"absent": "no step was tried"}
    assert content["values"]["rows"]["values"] == [1.5, None, {"float": "inf"}, 0.0]
    assert content["values"]["rows"]["absent"] == "the layer has no weights"
    write_file(path, reading)
    with zipfile.ZipFile(path) as archive:
        header = archive.read("reading.json").decode()
    assert "NaN" not in header and json.loads(header)["values"]["rate"] == {"absent": "no step was tried"}
    for back in (from_json(json.loads(text)), read_file(path)):
        assert same(back.values(), reading.values()) and back.absences == reading.absences


def test_the_words_of_older_files_are_read():
    content = to_json(lacking(1.0))
    content["values"] |= {"rate": {"float": "nan"}, "loss": {"float": "inf"}}
    content["values"]["rows"]["values"][1] = {"float": "nan"}
    back = from_json(content)
    assert math.isnan(back.rate) and back.loss == math.inf and math.isnan(back.rows[0, 1]) and back.rows[0, 0] == 1.5


def test_reasons_are_given_for_fields_that_are_there():
    for kind in KINDS.values():
        assert set(kind.may_lack) <= {entry.name for entry in fields(kind)}, kind
