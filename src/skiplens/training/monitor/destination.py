"""Where looks are written to: a file that holds the reading, and TensorBoard."""

from pathlib import Path
from typing import Any

from skiplens.core.errors import SkiplensError
from skiplens.readings.file import write_file
from skiplens.training.monitor.record import Look
from skiplens.training.monitor.tensorboard import Writer, write_scalars, writer_in
from skiplens.training.monitor.watch import Watch


class Destination:
    """Writes each look of a watch; the time that takes is the watch's."""

    def __init__(self, watch: Watch, path: Path | str | None, tensorboard: Writer | Path | str | None) -> None:
        self._watch, self._tensorboard = watch, tensorboard
        self._path = None if path is None else Path(path)
        self._writer: Writer | None = None
        self._opened: Any = None

    def open(self) -> None:
        """Open TensorBoard's files."""
        if self._tensorboard is not None:
            self._writer, self._opened = writer_in(self._tensorboard)

    def keep(self, look: Look) -> None:
        """Write a look; a disk that fails is an error at the first look and a note later: the run goes on."""
        with self._watch.ledger.charged(None, self._watch.sight.device):
            try:
                self._write()
                if self._writer is not None:
                    write_scalars(self._writer, look.step, look.numbers, self._parts())
            except (SkiplensError, OSError) as error:
                if len(self._watch.record.looks) == 1:
                    raise
                self._watch.record.note(f"A look could not be written at once: {error}")

    def close(self) -> None:
        """Write everything and close what was opened here."""
        self._write()
        if self._opened is not None:
            self._opened.close()
            self._writer = self._opened = None

    def _write(self) -> None:
        if self._path is not None:
            write_file(self._path, self._watch.reading())

    def _parts(self) -> dict[str, tuple[str, ...]]:
        """What the entries of rows are called."""
        sight = self._watch.sight
        levels = tuple(f"{level:g}" for level in sight.options.levels)
        return {"scales": sight.block_names, "jacobian_quantiles": levels}
