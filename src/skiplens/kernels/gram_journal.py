"""Which tiles of a Gram matrix are done, in a small file that is replaced whole, so that a killed run can go on."""

import hashlib
import json
from collections.abc import Callable
from pathlib import Path

from torch import Tensor

from skiplens.core.errors import BrokenFileError, InvalidInputError


class Journal:
    """The ``.tiles`` file beside a Gram matrix."""

    def __init__(self, path: Path, fingerprint: str, side: int, done: set[int]) -> None:
        self.path, self.fingerprint, self.side, self.done = path, fingerprint, side, done

    @classmethod
    def begin(cls, matrix: Path, fingerprint: str, side: int) -> "Journal":
        """The journal of the matrix at `matrix`: the one that is there, or a new one.

        Raises:
            InvalidInputError: If something else is at that path.
        """
        path = matrix.with_name(matrix.name + ".tiles")
        if not path.exists():
            return cls._new(path, matrix, fingerprint, side)
        found = _read(path)
        if found.fingerprint != fingerprint:
            raise InvalidInputError(
                f"{matrix.name} was begun with another kernel or other inputs, so it cannot be continued. "
                f"Delete {matrix.name} and {path.name}, or choose another path."
            )
        return found if matrix.exists() else cls._new(path, matrix, fingerprint, side)

    @classmethod
    def _new(cls, path: Path, matrix: Path, fingerprint: str, side: int) -> "Journal":
        if matrix.exists():
            raise InvalidInputError(
                f"{matrix.name} exists and has no {path.name} beside it, so it is not ours to overwrite. "
                "Delete it or choose another path."
            )
        journal = cls(path, fingerprint, side, set())
        journal._write()
        return journal

    def is_done(self, tile: int) -> bool:
        """Whether tile number `tile` has been written."""
        return tile in self.done

    def mark(self, tile: int) -> None:
        """Remember that tile number `tile` has been written."""
        self.done.add(tile)
        self._write()

    def _write(self) -> None:
        bits = sum(1 << tile for tile in self.done)
        content = {"fingerprint": self.fingerprint, "side": self.side, "done": f"{bits:x}"}
        temporary = self.path.with_name(self.path.name + ".new")
        temporary.write_text(json.dumps(content))
        temporary.replace(self.path)


def fingerprint(kernel: Callable[..., Tensor], X: Tensor, Y: Tensor | None) -> str:
    """A hash of the kernel's description and of all inputs."""
    owner = getattr(kernel, "__self__", None)
    name = getattr(kernel, "__qualname__", type(kernel).__qualname__)
    digest = hashlib.sha256(f"{owner!r} {name}".encode())
    for inputs in (X,) if Y is None else (X, Y):
        digest.update(f"{tuple(inputs.shape)} {inputs.dtype}".encode())
        for rows in inputs.detach().split(4096):
            digest.update(rows.cpu().contiguous().numpy().tobytes())
    return digest.hexdigest()


def _read(path: Path) -> Journal:
    try:
        content = json.loads(path.read_text())
        bits = int(content["done"], 16)
        side, fingerprint = int(content["side"]), str(content["fingerprint"])
    except (ValueError, KeyError, TypeError) as error:
        raise BrokenFileError(
            f"{path.name} is damaged ({error}). Delete it and the matrix beside it, and compute again."
        ) from error
    return Journal(path, fingerprint, side, {tile for tile in range(bits.bit_length()) if bits >> tile & 1})
