"""What the terminal shows: tables and progress that also look right in a log file and without colour."""

import io
import json
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn
from rich.progress import Progress as Bars
from rich.table import Table

from skiplens.base.progress import Progress

WIDTH_WITHOUT_TERMINAL = 120
INTERRUPTS: list[int] = []  # signals from the keyboard since the command began
_STYLES = {"critical": "bold red", "warning": "bold yellow"}


def out() -> Console:
    """Where results go: standard output."""
    return Console(width=None if sys.stdout.isatty() else WIDTH_WITHOUT_TERMINAL, highlight=False)


def err() -> Console:
    """Where progress and complaints go: standard error, so that results can be piped."""
    return Console(stderr=True, width=None if sys.stderr.isatty() else WIDTH_WITHOUT_TERMINAL, highlight=False)


def complain(message: str) -> None:
    """One error for a person."""
    err().print(f"[bold red]error[/]: {escape(message)}", soft_wrap=True)


def survive_any_encoding() -> None:
    """Have terminals without Unicode show `?` for what they do not know, instead of failing on it."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")


def place_of(out: Path, force: bool, holds_more: Callable[[Path], bool]) -> Path:
    """The folder to write to: `out`, or one beside it where an interrupted command would replace more by less."""
    if force or not INTERRUPTS or not holds_more(out):
        return out
    beside = out.with_name(f"{out.name}-interrupted")
    complain(f"interrupted, so what {out} holds is kept and what was finished goes to {beside}; --force replaces it.")
    return beside


def print_json(value: Any) -> None:
    """The result for a machine; nothing else goes to standard output."""
    unicode = (sys.stdout.encoding or "").lower().replace("-", "") == "utf8"  # elsewhere JSON has its own escapes
    sys.stdout.write(json.dumps(value, indent=1, ensure_ascii=not unicode, allow_nan=False) + "\n")


def print_table(title: str, rows: Sequence[Mapping[str, Any]]) -> None:
    """Rows of the same names as a table; numbers stand right."""
    table = Table(title=escape(title), title_justify="left", box=None, pad_edge=False, header_style="bold")
    for name in rows[0] if rows else ():
        numeric = all(isinstance(row[name], int | float) for row in rows)
        table.add_column(escape(name), justify="right" if numeric else "left", overflow="fold")
    for row in rows:
        table.add_row(*(escape(f"{value:,}" if isinstance(value, int) else str(value)) for value in row.values()))
    out().print(table)


def print_findings(findings: Sequence[tuple[str, str, str]]) -> None:
    """Severity, sentence and change of each; of a note the sentence alone."""
    table = Table.grid(padding=(0, 2))
    for severity, sentence, change in findings:
        table.add_row(f"[{_STYLES.get(severity, 'dim')}]{escape(severity)}[/]", escape(sentence))
        if severity != "note":
            table.add_row("", f"[dim]{escape(change)}[/]")
    if findings:
        out().print(table)


@contextmanager
def progress_shown() -> Iterator[Progress]:
    """A progress to hand to the library: one line that rewrites itself on a terminal, a line a stage in a log file.

    A label that is a sentence is a result, and stays on the terminal; of `stage: step` a log file has the stage.
    """
    if not sys.stderr.isatty():
        told: list[str] = []

        def tell(label: str, done: int, total: int) -> None:
            line = label if label.endswith(".") else label.partition(": ")[0]
            if line not in told:
                told.append(line)
                err().print(escape(line), soft_wrap=True)

        yield tell
        return
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Bars(*columns, console=err(), transient=True) as bars:
        line = bars.add_task("", total=None, visible=False)

        def show(label: str, done: int, total: int) -> None:
            if label.endswith("."):
                bars.console.print(escape(label))
            else:
                bars.update(line, description=escape(label), completed=done, total=total, visible=True)

        yield show
