"""One reading in one file: arrays without pickle, the rest as JSON, each part with a checksum.

The file is an ordinary `.npz` (zip) archive: NumPy opens its arrays too. Zip keeps a CRC-32 of every member and its
table of contents at the end, so a file that was cut off or damaged cannot be read as a good one.
"""

import dataclasses
import errno
import io
import json
import math
import pickle
import struct
import zipfile
import zlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import torch

from skiplens.base.errors import BrokenFileError, SkiplensError, TooNewFileError, refuse_if
from skiplens.base.files import is_folder, write_atomically
from skiplens.readings.reading import KINDS, NOT_FINITE, Provenance, Reading, lacks

FORMAT, FORMAT_VERSION = "skiplens-reading", 1
HEADER = "reading.json"

# What zipfile and torch say to damaged bytes, and to a pickle that would run code. RuntimeError is also zipfile's word
# for flags it does not know, and holds RecursionError.
_DAMAGE = (pickle.UnpicklingError, zipfile.BadZipFile, zlib.error, EOFError, RuntimeError, ValueError, KeyError)
# And NumPy, json and the classes; a MemoryError is a size that nobody has written.
_IN_READINGS = (struct.error, AttributeError, TypeError, MemoryError, OverflowError)
ABSENT = "absent"  # stands where a number is missing, with the reason
_ARRAY = "$array"  # stands in the JSON where a tensor was; its value is the name of the array in the archive


@contextmanager
def damage_told(words: Callable[[Exception], str], *also: type[Exception]) -> Iterator[None]:
    """Inside a file is read: damaged bytes end in an error with these words, trouble of the disk as it is."""
    damage: tuple[type[Exception], ...] = (*_DAMAGE, *also, OSError)
    try:
        yield
    except damage as error:
        if isinstance(error, SkiplensError) or (isinstance(error, OSError) and error.errno != errno.EINVAL):
            raise
        raise BrokenFileError(words(error)) from error


def write_file(path: Path | str, reading: Reading) -> None:
    """Write `reading` to `path`: whole or not at all, whatever happens meanwhile."""
    arrays: dict[str, np.ndarray] = {}
    header = {
        "format": FORMAT,
        "format_version": FORMAT_VERSION,
        "kind": reading.kind,
        "kind_version": reading.version,
        "provenance": dataclasses.asdict(reading.provenance),
        "values": _encode(reading.values(), "", arrays, reading.absences),
    }

    def write(file: BinaryIO) -> None:
        with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive:
            archive.writestr(HEADER, json.dumps(header))
            for name, array in arrays.items():
                with archive.open(f"{name}.npy", "w", force_zip64=True) as member:
                    np.lib.format.write_array(member, array, allow_pickle=False)

    write_atomically(Path(path), write)


def read_file(path: Path | str) -> Reading:
    """The reading in `path`; a damaged or foreign file and one from a newer Skiplens are told apart by their errors."""
    path = Path(path)
    refuse_if(is_folder(path), f"{path} is a folder, not a Skiplens reading.", BrokenFileError)

    def words(error: Exception) -> str:
        return f"{path} is not a whole Skiplens reading: {type(error).__name__}: {error}."

    with path.open("rb") as file, damage_told(words, *_IN_READINGS), zipfile.ZipFile(file) as archive:
        header = json.loads(archive.read(HEADER))
        kind, version = _checked_kind(header, path), header["kind_version"]
        values = _decode(header["values"], archive)
        provenance = Provenance.from_json(header["provenance"])
    values = kind.upgrade(values, version)
    try:
        return kind(**values, provenance=provenance)
    except TypeError as error:
        raise BrokenFileError(f"{path} does not hold what a {kind.__name__} needs: {error}.") from error


def _checked_kind(header: Any, path: Path) -> type[Reading]:
    if not isinstance(header, dict) or header.get("format") != FORMAT:
        raise ValueError(f"its {HEADER} does not say {FORMAT!r}")
    kind = KINDS.get(header["kind"])
    if header["format_version"] > FORMAT_VERSION or kind is None or header["kind_version"] > kind.version:
        writer = header["provenance"].get("versions", {}).get("skiplens", "of unknown version")
        raise TooNewFileError(
            f"{path} holds a {header['kind']!r} reading written by Skiplens {writer}, which is newer than this one. "
            "Upgrade with: pip install -U skiplens"
        )
    return kind


def _encode(value: Any, name: str, arrays: dict[str, np.ndarray], reasons: Mapping[str, str]) -> Any:
    """The value in words that JSON has; tensors go to `arrays` under their place in the value."""
    if isinstance(value, torch.Tensor):
        place = f"arrays/{len(arrays)}-{''.join(c if c.isalnum() else '_' for c in name)[:80]}"
        arrays[place] = value.numpy()
        return {_ARRAY: place} | ({ABSENT: _reason(name, reasons)} if lacks(value) else {})
    if isinstance(value, Mapping):
        inner = {key: f"{name}.{key}" if name else key for key in value}
        return {key: _encode(entry, inner[key], arrays, reasons) for key, entry in value.items()}
    if isinstance(value, tuple):
        return [_encode(entry, f"{name}.{index}", arrays, reasons) for index, entry in enumerate(value)]
    return {ABSENT: _reason(name, reasons)} if lacks(value) else value


def _reason(place: str, reasons: Mapping[str, str]) -> str:
    """Why a number is missing at a place such as ``measured.weight_norm``."""
    return reasons.get(place.partition(".")[0], NOT_FINITE)


def _decode(value: Any, archive: zipfile.ZipFile) -> Any:
    if isinstance(value, dict):
        if set(value) == {ABSENT}:
            return math.nan
        if set(value) - {ABSENT} == {_ARRAY}:
            member = io.BytesIO(archive.read(f"{value[_ARRAY]}.npy"))
            return torch.from_numpy(np.lib.format.read_array(member, allow_pickle=False))
        return {key: _decode(entry, archive) for key, entry in value.items()}
    if isinstance(value, list):
        return tuple(_decode(entry, archive) for entry in value)
    return value


def to_json(reading: Reading) -> dict[str, Any]:
    """The kind, the version, the provenance and the values of `reading`."""
    return {
        "kind": reading.kind,
        "version": reading.version,
        "provenance": _plain(dataclasses.asdict(reading.provenance)),
        "values": {name: _plain(value, reading.absences.get(name)) for name, value in reading.values().items()},
    }


def from_json(content: Mapping[str, Any]) -> Reading:
    """The reading that `to_json` wrote."""
    kind = KINDS[content["kind"]]
    values = kind.upgrade(_restored(content["values"]), content["version"])
    return kind(**values, provenance=Provenance.from_json(_restored(content["provenance"])))


def _plain(value: Any, reason: str | None = None) -> Any:
    reason = reason or NOT_FINITE
    if isinstance(value, torch.Tensor):
        missing = lacks(value)
        entries = value.flatten().tolist()
        if value.is_floating_point() and value.itemsize < 8:  # nine digits tell numbers of 32 bits apart
            entries = [float(f"{entry:.9g}") for entry in entries]
        entries = [None if missing and entry != entry else _plain(entry) for entry in entries]
        form = {"dtype": str(value.dtype).removeprefix("torch."), "shape": list(value.shape), "values": entries}
        return form | ({ABSENT: reason} if missing else {})
    if isinstance(value, Mapping):
        return {key: _plain(entry, reason) for key, entry in value.items()}
    if isinstance(value, tuple | list):
        return [_plain(entry, reason) for entry in value]
    if isinstance(value, float) and not math.isfinite(value):
        return {ABSENT: reason} if math.isnan(value) else {"float": str(value)}
    return value


def _restored(value: Any) -> Any:
    if isinstance(value, dict):
        if set(value) == {"float"}:
            return float(value["float"])  # also the NaN of files from before absences had reasons
        if set(value) == {ABSENT}:
            return math.nan
        if set(value) - {ABSENT} == {"dtype", "shape", "values"}:
            numbers = [math.nan if entry is None else entry for entry in _restored(value["values"])]
            return torch.tensor(numbers, dtype=getattr(torch, value["dtype"])).reshape(value["shape"])
        return {key: _restored(entry) for key, entry in value.items()}
    if isinstance(value, list):
        return tuple(_restored(entry) for entry in value)
    return value
