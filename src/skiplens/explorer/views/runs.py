"""The runs view: reports, studies and comparisons of a folder, opened again, drawn anew and compared."""

import dataclasses
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote

from skiplens.base import InvalidInputError, Progress, in_words, refuse_if, track
from skiplens.explorer.control import SEPARATOR, Choice, Control, Several, Switch
from skiplens.explorer.view import Download, Drawing, Values, View
from skiplens.explorer.views import runs_folder
from skiplens.explorer.views.runs_folder import Row, Run, RunsFolder, Table, load_table, load_verdicts, told
from skiplens.explorer.written import notes_of, snippet
from skiplens.papers.study import PRESETS, Item, study
from skiplens.plots.figure import Figure, Line, Mark, Points
from skiplens.readings.reading import KINDS
from skiplens.report.compared import ComparedModel, mean_and_spread, measure, overlays
from skiplens.report.gallery import shown_word
from skiplens.report.inspection import Report
from skiplens.report.lenses import VIEWS, section_of

_VERDICT, _NONE = "verdict", "none"
_MOST_SERIES = 12


@dataclass(frozen=True)
class RunsView(View):
    """Reports, studies and comparisons in one folder; `folder` is None where there is none."""

    name = "runs"
    title = "Runs"
    lead = "Your own reports and studies: open one, compare several, take their numbers away."

    folder: RunsFolder | None = None

    def controls(self, words: Mapping[str, str]) -> tuple[Control, ...]:
        """The runs, and what can be seen of those that are chosen."""
        runs = self.folder.runs() if self.folder is not None else ()
        if not runs:
            return ()
        options = tuple((run.word, f"{run.label} ({told(run)['kind']})") for run in runs)
        chooser = Several("run", "Runs", options, help="One is opened, several are compared.")
        wanted = words.get("run", "").split(SEPARATOR)
        return (chooser, *_further_controls([run for run in runs if run.word in wanted], words))

    def draw(self, values: Values, measured: Any = None) -> Drawing:
        """What is in the chosen runs; the list of all where none is chosen."""
        chosen = self._chosen(values)
        if not chosen or self.folder is None:
            return self._overview()
        downloads = [
            Download(f"{run.label}/{name}" if len(chosen) > 1 else name, f"/files?name={quote(word, safe='')}")
            for run in chosen
            for name, word in self.folder.files(run)
        ]
        return dataclasses.replace(_draw(chosen, values, measured), downloads=tuple(downloads))

    def measurement(self, values: Values) -> Values | None:
        """The study and the item whose figures are drawn again from its readings, and when the study was written."""
        chosen = self._chosen(values)
        if len(chosen) != 1 or chosen[0].kind != "study" or values.get("table") != _NONE:  # none for a gallery
            return None
        written = (chosen[0].path / "verdicts.json").stat().st_mtime_ns
        return {"run": chosen[0].word, "item": values["item"], "written": written}

    def measure(self, values: Values, progress: Progress) -> Any:
        """The figures of an item of a study."""
        assert self.folder is not None, "a view without a folder has nothing to measure"
        return _redraw(self.folder.run(values["run"]).path, values["item"], progress)

    def _chosen(self, values: Values) -> list[Run]:
        return [self.folder.run(word) for word in values.get("run", ())] if self.folder is not None else []

    def _overview(self) -> Drawing:
        if self.folder is None:
            return Drawing(says="There is no folder of runs. Name one: skiplens explore RUNS_DIR.")
        runs, given = self.folder.runs(), self.folder.given
        says = f"There are no reports or studies in {given}. Write one: skiplens inspect --out {given}/mine."
        if runs:
            says = f"{len(runs)} runs in {given}. Choose one to open it, several to compare them."
        return Drawing(says=says, cards=tuple(map(told, runs)))


def _further_controls(chosen: Sequence[Run], words: Mapping[str, str]) -> tuple[Control, ...]:
    """The controls of the chosen runs; none where they cannot be read, which drawing them will say."""
    kinds = {run.kind for run in chosen}
    try:
        if kinds == {"report"}:
            return (_reading_control([runs_folder.load_report(run.path) for run in chosen]),)
        if kinds == {"study"} and len(chosen) == 1:
            return _study_controls(chosen[0], words)
    except Exception:  # whatever a strange file makes of the loaders: drawing it tells the person
        return ()
    return ()


def _draw(chosen: Sequence[Run], values: Values, measured: Any) -> Drawing:
    kinds = {run.kind for run in chosen}
    if kinds == {"report"}:
        reports = [runs_folder.load_report(run.path) for run in chosen]
        kind = values.get("reading", _VERDICT)
        return _draw_report(chosen[0], reports[0], kind) if len(chosen) == 1 else _draw_reports(chosen, reports, kind)
    if kinds == {"study"}:
        return _draw_study(chosen[0], values, measured) if len(chosen) == 1 else _draw_studies(chosen)
    if kinds == {"comparison"} and len(chosen) == 1:
        return _draw_comparison(chosen[0])
    raise InvalidInputError(
        "Reports are compared with reports and studies with studies; choose runs of one kind, or one comparison."
    )


def _reading_control(reports: Sequence[Report]) -> Choice:
    """Which of the readings that all reports have to look at."""
    shared = set.intersection(*({reading.kind for reading in report.readings} for report in reports))
    titles = {
        reading.kind: section_of(reading).title
        for reading in reports[0].readings
        if reading.kind in shared and VIEWS[type(reading)].section is not None
    }
    about = "The report itself, or what one lens saw, with its numbers to take away."
    return Choice("reading", "Reading", ((_VERDICT, "The report"), *titles.items()), default=_VERDICT, help=about)


def _draw_report(run: Run, report: Report, kind: str) -> Drawing:
    """A report as its own page, or one of its readings with its figures drawn anew."""
    if kind == _VERDICT:
        code = snippet("report", folder=str(run.path))
        return Drawing(says=f"{report.title}: {report.verdict}", page=run.page, code=code)
    section = section_of(next(reading for reading in report.readings if reading.kind == kind))
    return Drawing(
        figures=section.figures,
        says=section.sentence,
        facts=section.facts,
        rows=section.rows,
        code=snippet("reading", folder=str(run.path), kind=kind),
        notes=(*section.notes, "; ".join(f"{label}: {value}" for label, value in section.provenance if value)),
    )


def _draw_reports(runs: Sequence[Run], reports: Sequence[Report], kind: str) -> Drawing:
    """One reading of all reports, or their verdicts."""
    names, labels = [str(run.path) for run in runs], [run.label for run in runs]
    if kind == _VERDICT:
        says = f"{len(reports)} reports. Choose a reading to see its curves and numbers side by side."
        return Drawing(says=says, cards=tuple(map(told, runs)), code=snippet("reports", folders=names))
    models = [ComparedModel(label, (report,)) for label, report in zip(labels, reports, strict=True)]
    rows = [
        {"number": number.label, **dict(zip(labels, map(mean_and_spread, number.values), strict=True))}
        for number in measure(models, [KINDS[kind]])
    ]
    figures = overlays(models, KINDS[kind])
    says = "This reading has neither curves nor numbers that can be compared; open the runs one by one."
    if figures:
        says = f"{' and '.join(labels)} in one picture."
    elif rows:
        says = f"The numbers of {' and '.join(labels)}."
    code = snippet("readings", folders=names, kind=kind)
    return Drawing(figures, says, rows=tuple(rows), code=code, notes=notes_of("reports"))


def _draw_comparison(run: Run) -> Drawing:
    """The page of a comparison; its verdict alone where that is gone."""
    content = runs_folder.load_comparison(run.path)
    code = snippet("comparison", path=str(run.path / "comparison.json"))
    return Drawing(says=str(content.get("verdict", "")), page=run.page, code=code)


def _study_controls(run: Run, words: Mapping[str, str]) -> tuple[Control, ...]:
    """The whole gallery or which item, and whether its figures or one of its tables are drawn."""
    folder, whole = run.path, ((_VERDICT, "The gallery"),) * bool(run.page)
    items = list(dict.fromkeys(map(_item_name, load_verdicts(folder))))
    if not items:
        return ()
    about = "The gallery of all, or a figure, table or theorem of the paper."
    options = (*whole, *zip(items, items, strict=True))
    item = Choice("item", "Item", options, default=options[0][0], help=about)
    chosen = words["item"] if words.get("item") in items else item.default
    if chosen == _VERDICT:
        return (item,)
    tables = _tables_of(folder, chosen)
    options = ((_NONE, "the paper's figures"), *zip(tables, tables, strict=True))
    about = "The paper's figures from the stored readings, or columns of a table of raw numbers."
    table = Choice("table", "Draw", options, default=_NONE, help=about)
    path = tables.get(words.get("table", _NONE))
    return (item, table, *(_column_controls(path) if path is not None else ()))


def _item_name(row: Row) -> str:
    return f"{row.get('study')}/{row.get('item')}"


def _tables_of(folder: Path, item: str) -> dict[str, Path]:
    """The tables of an item by their names."""
    stem = item.replace("/", "_")
    return {path.stem: path for path in sorted((folder / "tables").glob("*.csv")) if path.stem.startswith(f"{stem}_")}


def _column_controls(path: Path) -> tuple[Control, ...]:
    """The columns of a table; none where it cannot be read, which drawing it will say."""
    try:
        table = load_table(path)
    except Exception:  # whatever a strange table makes of the loader; drawing it tells the person
        return ()
    numeric = tuple((name, name) for name in table.numeric)
    if len(numeric) < 2:
        return ()
    series = [(name, name) for name, cells in table.columns.items() if 1 < len(set(cells)) <= _MOST_SERIES]
    return (
        Choice("x", "Along", numeric, default=numeric[0][0], help="The column along the picture."),
        Choice("y", "Up", numeric, default=numeric[-1][0], help="The column that is drawn."),
        Choice("by", "One line for each", ((_NONE, "nothing"), *series), default=_NONE, help="Tells rows apart."),
        Switch("x_log", "Logarithmic along", help="For columns that span factors.", default=False),
        Switch("y_log", "Logarithmic up", help="For columns that span factors.", default=False),
    )


def _draw_study(run: Run, values: Values, measured: Any) -> Drawing:
    """The whole gallery, or the verdicts of an item with its figures or with a chart of a table."""
    folder, rows = run.path, load_verdicts(run.path)
    if "item" not in values:
        return Drawing(says="The study has no verdicts yet.")
    if values["item"] == _VERDICT:
        code = snippet("studies", files=[str(folder / "verdicts.json")])
        return Drawing(says=f"{run.label}: {runs_folder.counted(rows)}.", page=run.page, code=code)
    own = [row for row in rows if _item_name(row) == values["item"]]
    says = f"{values['item']}: {runs_folder.counted(own)}."
    environment = {name: str(value) for name, value in runs_folder.load_environment(folder).items()}
    facts = tuple((name, environment.pop(name)) for name in ("preset", "seed") if name in environment)
    origin = ", ".join(f"{name} {value}" for name, value in environment.items())
    if values["table"] != _NONE:
        path = _tables_of(folder, values["item"])[values["table"]]
        table = load_table(path)
        figure, code = _chart(table, values), _table_code(path, values)
        return Drawing((figure,), says, facts, table.rows, code=code, notes=(origin,))
    figures, problem = measured or ((), "")
    columns = ("claim", "paper", "ours", "uncertainty", "verdict")
    worded = [{**row, "verdict": shown_word(str(row.get("verdict")), row.get("ours"))} for row in own]
    shown = [{name: "" if row.get(name) is None else row[name] for name in columns} for row in worded]
    code = snippet("study", path=str(folder / "verdicts.json"), item=values["item"])
    return Drawing(figures, says, facts, tuple(shown), code=code, notes=tuple(filter(None, (problem, origin))))


def _redraw(folder: Path, item: str, progress: Progress) -> tuple[tuple[Figure, ...], str]:
    """The figures of an item from the readings in the folder's store, and why there are none where there are none."""
    found = _known_item(item)
    environment = runs_folder.load_environment(folder)
    preset, seed = environment.get("preset"), environment.get("seed")
    if found is None or preset not in PRESETS or not isinstance(seed, int):
        return (), "The study or its preset is not known here, so its figures cannot be drawn again; its tables can."
    keys = dict.fromkeys(run.key for run in found.runs(preset, seed))  # a run that is named twice counts once
    paths = [folder / "store" / f"{key}.npz" for key in keys]
    missing = sum(not path.is_file() for path in paths)
    if missing:
        return (), f"{missing} of {len(paths)} readings are not in the folder, so figures cannot be drawn again."
    watched = track(paths, "reading what was measured", len(paths), progress)
    return found.figures([runs_folder.load_reading(path) for path in watched]), ""


def _known_item(name: str) -> Item | None:
    study_name, _, item = name.partition("/")
    try:
        return study(study_name).item(item)
    except InvalidInputError:
        return None


def _draw_studies(runs: Sequence[Run]) -> Drawing:
    """A table of all claims, and whether the studies agree on them."""
    studies = {
        run.label: {f"{_item_name(row)}/{row.get('claim')}": row for row in load_verdicts(run.path)} for run in runs
    }
    claims = list(dict.fromkeys(claim for found in studies.values() for claim in found))
    verdicts = ({row[claim].get("verdict") for row in studies.values() if claim in row} for claim in claims)
    differing = sum(len(words) > 1 for words in verdicts)
    return Drawing(
        says=f"{len(claims)} claims; the runs have different verdicts on {differing} of them.",
        rows=tuple({"claim": c} | {label: _verdict(found.get(c)) for label, found in studies.items()} for c in claims),
        code=snippet("studies", files=[str(run.path / "verdicts.json") for run in runs]),
    )


def _verdict(row: Row | None) -> str:
    if row is None:
        return "–"
    ours, word = row.get("ours"), shown_word(str(row.get("verdict")), row.get("ours"))
    return f"{word} ({in_words(ours, 4)})" if isinstance(ours, float | int) else word


def _chart(table: Table, values: Values) -> Figure:
    """One column against another, one line for each cell of a third."""
    refuse_if("x" not in values, "The table has fewer than two columns of numbers, so there is nothing to draw.")
    x, y, by = values["x"], values["y"], values["by"]
    groups = [None] * len(table.columns[x]) if by == _NONE else table.columns[by]
    marks: list[Mark] = []
    for group in dict.fromkeys(groups):
        cells = zip(table.columns[x], table.columns[y], groups, strict=True)
        own = sorted((along, up) for along, up, key in cells if key == group and _drawable(along, up, values))
        places, heights = tuple(along for along, _ in own), tuple(up for _, up in own)
        if by == _NONE or len(set(places)) < len(places):
            marks.append(Points(places, heights, "" if by == _NONE else f"{by} = {group}"))
        else:
            marks.append(Line(places, heights, f"{by} = {group}"))
    caption = f"{len(table.rows)} rows of the table{'' if by == _NONE else f', one line for each {by}'}."
    scales = {name: values[name] for name in ("x_log", "y_log")}
    return Figure("columns", f"{y} against {x}", caption, x, y, tuple(marks), **scales)


def _drawable(along: float, up: float, values: Values) -> bool:
    finite = math.isfinite(along) and math.isfinite(up)
    return finite and (along > 0 or not values["x_log"]) and (up > 0 or not values["y_log"])


def _table_code(path: Path, values: Values) -> str:
    cells = [f"float(row[{values[name]!r}] or 'nan')" for name in ("x", "y") if name in values]
    if cells and values["by"] != _NONE:
        cells.append(f"row[{values['by']!r}]")
    return (
        f"import csv\n\nwith open({str(path)!r}, newline='') as file:\n"
        f"    result = [({', '.join(cells) or 'row'}) for row in csv.DictReader(file)]\n"
    )
