"""A slice on disk while it is computed: its directions, and one line for each finished row."""

import json
import os
import pickle
import zipfile
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, BinaryIO

import torch

from skiplens.core.errors import BrokenFileError, InvalidInputError
from skiplens.core.files import write_atomically
from skiplens.lenses.curvature.landscape_directions import DirectionSet

_DAMAGE = (pickle.UnpicklingError, zipfile.BadZipFile, EOFError, RuntimeError, ValueError, KeyError)


class Journal:
    """Finished rows in a folder; without a folder nothing is kept.

    A row is one line with its own checksum, written to disk before the next row is reported: a killed process loses
    the rows it was at, and a half-written line is noticed and dropped. Numbers are in hexadecimal, so they come back
    bit for bit.
    """

    def __init__(self, folder: str | None, identity: Mapping[str, Any]) -> None:
        self.folder = None if folder is None else Path(folder)
        self.identity = dict(identity)
        self.rows: dict[int, list[float]] = {}
        if self.folder is not None:
            self._load(self.folder / "rows.jsonl")

    def directions(self) -> DirectionSet | None:
        """The directions that the slice was begun with, or None where it has not begun."""
        if self.folder is None or not (path := self.folder / "directions.pt").exists():
            return None
        try:
            kept = torch.load(path, map_location="cpu", weights_only=True)
            self._require_same(kept["identity"])
            return DirectionSet(kept["vectors"], tuple(kept["names"]), kept["slopes"], kept["curvatures"])
        except _DAMAGE as error:
            if isinstance(error, InvalidInputError):
                raise
            raise BrokenFileError(
                f"{path} is damaged ({type(error).__name__}). Delete the folder {self.folder} to begin anew."
            ) from error

    def begin(self, directions: DirectionSet) -> None:
        """Keep the directions, so that a slice that goes on has exactly the same."""
        if self.folder is None:
            return
        whole = {
            "identity": self.identity,
            "vectors": directions.vectors.cpu(),
            "names": list(directions.names),
            "slopes": directions.slopes.cpu(),
            "curvatures": directions.curvatures.cpu(),
        }
        write_atomically(self.folder / "directions.pt", lambda file: torch.save(whole, file))

    def add(self, number: int, losses: list[float]) -> None:
        """Keep a finished row."""
        self.rows[number] = losses
        if self.folder is not None:
            with (self.folder / "rows.jsonl").open("ab") as file:
                file.write(_line({"row": number, "losses": [loss.hex() for loss in losses]}))
                file.flush()
                os.fsync(file.fileno())

    def _load(self, path: Path) -> None:
        lines = path.read_bytes().splitlines(keepends=True) if path.exists() else []
        good = _undamaged(lines)
        if good:
            self._require_same(good[0])
            self.rows = {entry["row"]: [float.fromhex(loss) for loss in entry["losses"]] for entry in good[1:]}
        if not good or len(good) < len(lines):
            kept = b"".join(lines[: len(good)]) or _line(self.identity)
            write_atomically(path, lambda file: _write_all(file, kept))

    def _require_same(self, kept: Mapping[str, Any]) -> None:
        different = [name for name in self.identity if kept.get(name) != self.identity[name]]
        if different:
            raise InvalidInputError(
                f"{self.folder} holds another slice, which differs in {', '.join(different)}. "
                "Give this slice a folder of its own, or delete that one."
            )


def _write_all(file: BinaryIO, content: bytes) -> None:
    file.write(content)


def _line(entry: Mapping[str, Any]) -> bytes:
    text = json.dumps(entry)
    return f"{zlib.crc32(text.encode()):08x} {text}\n".encode()


def _undamaged(lines: list[bytes]) -> list[dict[str, Any]]:
    """The entries up to the first line that is not whole."""
    entries: list[dict[str, Any]] = []
    for line in lines:
        checksum, _, text = line.partition(b" ")
        if not line.endswith(b"\n") or checksum != f"{zlib.crc32(text[:-1]):08x}".encode():
            break
        entries.append(json.loads(text))
    return entries
