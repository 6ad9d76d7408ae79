"""The runs view."""

import dataclasses
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from fnmatch import fnmatch
from pathlib import Path
from typing import Any, ClassVar, Literal
from urllib.parse import quote, unquote_to_bytes

from skiplens.base.errors import InvalidInputError
from skiplens.base.progress import Progress
from skiplens.explorer.control import SEPARATOR, Control, Several
from skiplens.explorer.view import Download, Drawing, Values, View
from skiplens.explorer.views.runs_content import load_report
from skiplens.explorer.views.runs_reports import draw_comparison, draw_report, draw_reports, reading_control
from skiplens.explorer.views.runs_studies import NONE, draw_studies, draw_study, redraw, study_controls

Kind = Literal["report", "study", "comparison"]


@dataclass(frozen=True)
class Run:
    """A report, a study or a comparison.

    Attributes:
        word: Its name as it stands in an address: any name of a folder, without commas and odd characters.
        label: Its name for a person.
        kind: What it is.
        path: Where it is.
    """

    word: str
    label: str
    kind: Kind
    path: Path


class RunsFolder:
    """A folder and everything that is really inside of it; links that lead outside are not followed."""

    def __init__(self, root: Path) -> None:
        if not root.is_dir():
            raise InvalidInputError(f"{root} is not a folder; name the one that holds your reports and studies.")
        self.given = root
        self._root = root.resolve()

    def runs(self) -> tuple[Run, ...]:
        """All runs, in order of their names."""
        found = sorted(self._walk(self._root, _DEEPEST, set()), key=lambda run: run.word)
        return tuple(found[:MOST_RUNS])

    def run(self, word: str) -> Run:
        """The run that is called so."""
        run = self._run(self._inside(word))
        if run is None:
            raise InvalidInputError(f"There is no run {word!r} in the folder.")
        return run

    def files(self, run: Run) -> tuple[tuple[str, str], ...]:
        """The files of a run that may be downloaded: their names in it, and their words for `file`."""
        names = (path for pattern in FILES for path in sorted(run.path.glob(pattern)))
        inside = [path for path in names if path.is_file() and self._holds(path)]
        return tuple((_label(path.relative_to(run.path)), self._word(path)) for path in inside[:MOST_FILES])

    def file(self, word: str) -> Path:
        """The place of a file of a run; every other name is refused, however it is written."""
        path = self._inside(word)
        for depth in (0, 1):
            folder = path.parents[depth]
            name = path.relative_to(folder).as_posix()
            known = any(fnmatch(name, pattern) and name.count("/") == pattern.count("/") for pattern in FILES)
            if known and path.is_file() and self._holds(folder) and self._run(folder) is not None:
                return path
        raise InvalidInputError(f"There is no file {word!r} of a run in the folder.")

    def _walk(self, folder: Path, deeper: int, seen: set[Path]) -> Iterator[Run]:
        if folder in seen:
            return
        seen.add(folder)
        run = self._run(folder)
        if run is not None:
            yield run
        if deeper and len(seen) < 20 * MOST_RUNS:
            for path in _folders_in(folder):
                if self._holds(path):
                    yield from self._walk(path.resolve(), deeper - 1, seen)

    def _run(self, folder: Path) -> Run | None:
        marks = ((folder / name, kind) for name, kind in MARKS.items())
        kind = next((kind for path, kind in marks if path.is_file() and self._holds(path)), None)
        if kind is None:
            return None
        name = folder.relative_to(self._root)
        return Run(self._word(folder), _label(name) if name.parts else _label(Path(self._root.name)), kind, folder)

    def _word(self, path: Path) -> str:
        return quote(os.fsencode(path.resolve().relative_to(self._root)), safe="/")

    def _inside(self, word: str) -> Path:
        """The path that a word names, resolved; refused unless it lies in the folder."""
        refused = InvalidInputError(f"{word!r} names nothing inside of the folder of runs.")
        try:
            name = os.fsdecode(unquote_to_bytes(word))
            path = (self._root / name).resolve(strict=True)
        except (OSError, ValueError, RuntimeError) as error:  # missing, a NUL in it, or links in a circle
            raise refused from error
        if not path.is_relative_to(self._root):
            raise refused
        return path

    def _holds(self, path: Path) -> bool:
        try:
            return path.resolve(strict=True).is_relative_to(self._root)
        except (OSError, RuntimeError):
            return False


@dataclass(frozen=True)
class RunsView(View):
    """Reports, studies and comparisons in one folder; `folder` is None where there is none."""

    name: ClassVar[str] = "runs"
    title: ClassVar[str] = "Runs"
    lead: ClassVar[str] = "Your own reports and studies: open one, compare several, take their numbers away."

    folder: RunsFolder | None = None

    def controls(self, words: Mapping[str, str]) -> tuple[Control, ...]:
        """The runs, and what can be seen of those that are chosen."""
        runs = self.folder.runs() if self.folder is not None else ()
        if not runs:
            return ()
        chooser = Several(
            "run",
            "Runs",
            help="One is opened, several are compared.",
            options=tuple((run.word, f"{run.label} ({run.kind})") for run in runs),
        )
        wanted = words.get("run", "").split(SEPARATOR)
        return (chooser, *self._further([run for run in runs if run.word in wanted], words))

    def draw(self, values: Values, measured: Any = None) -> Drawing:
        """What is in the chosen runs; the list of all where none is chosen."""
        chosen = self._chosen(values)
        if not chosen:
            return self._overview()
        drawing = _drawing(chosen, values, measured)
        return dataclasses.replace(drawing, downloads=tuple(self._downloads(chosen)))

    def measurement(self, values: Values) -> Values | None:
        """The study and the item whose figures are drawn again from its readings, and when the study was written."""
        chosen = self._chosen(values)
        if len(chosen) != 1 or chosen[0].kind != "study" or values.get("table") != NONE:
            return None
        written = (chosen[0].path / "verdicts.json").stat().st_mtime_ns
        return {"run": chosen[0].word, "item": values["item"], "written": written}

    def measure(self, values: Values, progress: Progress) -> Any:
        """The figures of an item of a study."""
        assert self.folder is not None, "a view without a folder has nothing to measure"
        return redraw(self.folder.run(values["run"]).path, values["item"], progress)

    def _chosen(self, values: Values) -> list[Run]:
        assert self.folder is not None or not values.get("run"), "a view without a folder has no runs"
        return [self.folder.run(word) for word in values.get("run", ())] if self.folder is not None else []

    def _further(self, chosen: Sequence[Run], words: Mapping[str, str]) -> tuple[Control, ...]:
        """The controls of the chosen runs; none where they cannot be read, which drawing them will say."""
        kinds = {run.kind for run in chosen}
        try:
            if kinds == {"report"}:
                return (reading_control(tuple(load_report(run.path) for run in chosen)),)
            if kinds == {"study"} and len(chosen) == 1:
                return study_controls(chosen[0].path, words)
        except Exception:  # whatever a strange file makes of the loaders: drawing it tells the person
            return ()
        return ()

    def _overview(self) -> Drawing:
        if self.folder is None:
            return Drawing(says="There is no folder of runs. Name one: skiplens explore RUNS_DIR.")
        runs = self.folder.runs()
        if not runs:
            return Drawing(
                says=f"There are no reports or studies in {self.folder.given}. Write one: skiplens inspect --out "
                f"{self.folder.given}/mine."
            )
        return Drawing(
            says=f"{len(runs)} runs in {self.folder.given}. Choose one to open it, several to compare them.",
            rows=tuple({"run": run.label, "kind": run.kind, "written": _written(run)} for run in runs),
        )

    def _downloads(self, chosen: Sequence[Run]) -> list[Download]:
        assert self.folder is not None, "runs were chosen from a folder"
        several = len(chosen) > 1
        return [
            Download(f"{run.label}/{name}" if several else name, f"/files?name={quote(word, safe='')}")
            for run in chosen
            for name, word in self.folder.files(run)
        ]


def _drawing(chosen: Sequence[Run], values: Values, measured: Any) -> Drawing:
    labels, folders = [run.label for run in chosen], [run.path for run in chosen]
    kinds = {run.kind for run in chosen}
    if kinds == {"report"}:
        reports = [load_report(folder) for folder in folders]
        kind = values["reading"] if "reading" in values else "verdict"
        if len(chosen) == 1:
            return draw_report(reports[0], kind, folders[0])
        return draw_reports(labels, reports, kind, folders)
    if kinds == {"study"}:
        if len(chosen) > 1:
            return draw_studies(labels, folders)
        return draw_study(folders[0], values, measured)
    if kinds == {"comparison"} and len(chosen) == 1:
        return draw_comparison(folders[0])
    raise InvalidInputError(
        "Reports are compared with reports and studies with studies; choose runs of one kind, or one comparison."
    )


def _written(run: Run) -> str:
    mark = next(run.path / name for name, kind in MARKS.items() if kind == run.kind)
    return datetime.fromtimestamp(mark.stat().st_mtime).strftime("%Y-%m-%d %H:%M")


MARKS: dict[str, Kind] = {"readings.json": "report", "verdicts.json": "study", "comparison.json": "comparison"}
"""The file that tells what a folder is."""

FILES = (
    *MARKS,
    *("report.html", "index.html", "comparison.html", "environment.json"),
    *("tables/*.csv", "figures/*.png", "figures/*.svg", "store/*.npz"),
)
"""What a run's folder has that may be downloaded; anything else in it is nobody's business."""

MOST_RUNS = 500

MOST_FILES = 200

_DEEPEST = 5  # folders below the one that was given


def _folders_in(folder: Path) -> list[Path]:
    try:
        return sorted(path for path in folder.iterdir() if path.is_dir() and not path.name.startswith("."))
    except OSError:
        return []


def _label(path: Path) -> str:
    return os.fsencode(path).decode(errors="replace")
