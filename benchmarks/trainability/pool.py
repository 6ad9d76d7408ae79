"""Work that many processes share, with a file of rows that grows: the same command goes on where it was interrupted."""

import csv
import sys
import traceback
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import torch

Row = dict[str, Any]


def read_rows(file: Path) -> list[Row]:
    """The rows that are there; a last line that was cut off is left out."""
    if not file.exists():
        return []
    with file.open(newline="", encoding="utf-8") as stream:
        return [row for row in csv.DictReader(stream) if None not in row.values() and None not in row]


def append_rows(
    file: Path, columns: Sequence[str], batches: Iterable[Sequence[Row]], keep: Callable[[Row], bool] = lambda row: True
) -> Iterator[Sequence[Row]]:
    """Write rows as they come, and hand them on; earlier ones that are half-written or not to keep are removed."""
    before = [row for row in read_rows(file) if keep(row)]
    file.parent.mkdir(parents=True, exist_ok=True)
    part = file.with_suffix(".part")
    with part.open("w", newline="", encoding="utf-8") as stream:
        writer = csv.DictWriter(stream, columns, lineterminator="\n")
        writer.writeheader()
        writer.writerows({column: row.get(column, "") for column in columns} for row in before)
    part.replace(file)
    with file.open("a", newline="", encoding="utf-8") as stream:
        writer = csv.DictWriter(stream, columns, lineterminator="\n")
        for rows in batches:
            writer.writerows(rows)
            stream.flush()
            yield rows


def shared_out(work: Callable[[Any], Any], jobs: Sequence[Any], processes: int) -> Iterator[Any]:
    """The results of all jobs as they come, from this process or from `processes` new ones with a thread each.

    A job that fails is told and left out: it does not end the others, and the same command tries it again.
    """
    guarded = partial(_result_or_none, work)
    if processes < 2:
        yield from filter(None, map(guarded, jobs))
        return
    with get_context("spawn").Pool(processes, torch.set_num_threads, (1,)) as pool:
        yield from filter(None, pool.imap_unordered(guarded, jobs))


def _result_or_none(work: Callable[[Any], Any], job: Any) -> Any:
    try:
        return work(job)
    except Exception:
        sys.stderr.write(f"{job} failed:\n{traceback.format_exc()}")
        return None
