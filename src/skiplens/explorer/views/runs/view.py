"""The runs view."""

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, ClassVar
from urllib.parse import quote

from skiplens.core.errors import InvalidInputError
from skiplens.core.progress import Progress
from skiplens.explorer.control import SEPARATOR, Control, Several
from skiplens.explorer.drawing import Download, Drawing
from skiplens.explorer.view import Values, View
from skiplens.explorer.views.runs.content import load_report
from skiplens.explorer.views.runs.folder import MARKS, Run, RunsFolder
from skiplens.explorer.views.runs.one_comparison import draw_comparison
from skiplens.explorer.views.runs.one_report import draw_report, reading_control
from skiplens.explorer.views.runs.one_study import NONE, draw_study, redraw, study_controls
from skiplens.explorer.views.runs.several_reports import draw_reports
from skiplens.explorer.views.runs.several_studies import draw_studies


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
