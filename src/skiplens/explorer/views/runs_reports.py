"""A report opened again: its verdict, or one of its readings with its figures drawn anew."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from skiplens.explorer.control import Choice
from skiplens.explorer.view import Check, Drawing
from skiplens.explorer.views.runs_content import load_comparison
from skiplens.plots.section import Section
from skiplens.readings.finding import Finding
from skiplens.readings.reading import KINDS
from skiplens.report.compared import ComparedModel, in_words, measure, overlays
from skiplens.report.inspection import Report
from skiplens.report.lenses import VIEWS, section_of

VERDICT = "verdict"

_STATES: dict[str, Literal["holds", "fails", "unknown"]] = {"critical": "fails", "warning": "fails", "note": "unknown"}


def reading_control(reports: tuple[Report, ...]) -> Choice:
    """Which of the readings that all reports have to look at."""
    kinds = [{reading.kind for reading in report.readings} for report in reports]
    shared = [
        reading
        for reading in reports[0].readings
        if all(reading.kind in own for own in kinds) and VIEWS[type(reading)].section is not None
    ]
    titles = [(reading.kind, section_of(reading).title) for reading in shared]
    return Choice(
        "reading",
        "Reading",
        help="What the lenses saw; the verdict is what follows from all of it.",
        options=((VERDICT, "Verdict"), *dict(titles).items()),
        default=VERDICT,
    )


def draw_report(report: Report, kind: str, folder: Path) -> Drawing:
    """The verdict of a report, or one of its readings."""
    if kind == VERDICT:
        return _verdict(report, folder)
    reading = next(reading for reading in report.readings if reading.kind == kind)
    section: Section = section_of(reading)
    return Drawing(
        figures=section.figures,
        says=section.sentence,
        facts=section.facts,
        rows=section.rows,
        code=_code(kind, folder),
        notes=(*section.notes, "; ".join(f"{label}: {value}" for label, value in section.provenance if value)),
    )


def _verdict(report: Report, folder: Path) -> Drawing:
    problems = [Check("unknown", problem.lens, problem.message) for problem in report.problems]
    return Drawing(
        says=f"{report.title}: {report.verdict}",
        facts=tuple((section.title, section.sentence) for section in report.sections()),
        checks=(*map(_check, report.findings), *problems) or (Check("holds", "Healthy", "Nothing was found."),),
        code=f"from skiplens.report import Report\n\nresult = Report.load({str(folder)!r}).verdict\n",
    )


def _check(found: Finding) -> Check:
    return Check(_STATES.get(found.severity, "unknown"), found.sentence, f"What helps: {found.change}")


def _code(kind: str, folder: Path) -> str:
    return (
        "from skiplens.plots import figures_of\n"
        "from skiplens.report import Report\n\n"
        f"readings = Report.load({str(folder)!r}).readings\n"
        f"result = [figure for reading in readings if reading.kind == {kind!r} for figure in figures_of(reading)]\n"
    )


ALONE = "difference"


def draw_reports(labels: Sequence[str], reports: Sequence[Report], kind: str, folders: Sequence[Path]) -> Drawing:
    """One reading of all reports, or their verdicts."""
    contenders = [ComparedModel(label, (report,)) for label, report in zip(labels, reports, strict=True)]
    if kind == VERDICT:
        verdicts = tuple(
            {"run": one.name, "model": one.reports[0].title, "verdict": one.reports[0].verdict} for one in contenders
        )
        return Drawing(says=f"{len(contenders)} reports.", rows=verdicts, code=_verdict_code(folders))
    numbers = measure(contenders, [KINDS[kind]])
    rows = [
        {
            "number": number.label,
            **{label: in_words(values) for label, values in zip(labels, number.values, strict=True)},
        }
        for number in numbers
    ]
    figures = overlays(contenders, KINDS[kind])
    return Drawing(
        figures=figures,
        says=_says(labels, bool(figures), bool(rows)),
        rows=tuple(rows),
        code=_code_of_several(kind, folders),
        notes=(
            "One run each: whether a difference is more than chance shows when several draws of the weights are "
            "compared (skiplens compare).",
        ),
    )


def _says(labels: Sequence[str], drawn: bool, counted: bool) -> str:
    if not drawn and not counted:
        return "This reading has neither curves nor numbers that can be compared; open the runs one by one."
    return f"{' and '.join(labels)} in one picture." if drawn else f"The numbers of {' and '.join(labels)}."


def _verdict_code(folders: Sequence[Path]) -> str:
    names = [str(folder) for folder in folders]
    return (
        "from skiplens.report import Report\n\n"
        f"folders = {names!r}\n"
        "result = [Report.load(folder).verdict for folder in folders]\n"
    )


def _code_of_several(kind: str, folders: Sequence[Path]) -> str:
    names = [str(folder) for folder in folders]
    return (
        "from skiplens.report import Report\n"
        "from skiplens.jacobians.report import key_numbers\n\n"
        f"folders = {names!r}\n"
        f"readings = [r for folder in folders for r in Report.load(folder).readings if r.kind == {kind!r}]\n"
        "result = [{number.label: number.value for number in key_numbers(reading)} for reading in readings]\n"
    )


def draw_comparison(folder: Path) -> Drawing:
    """The numbers of all models, and which of them differ."""
    content = load_comparison(folder)
    rows = tuple(_row(number) for number in content["numbers"])
    return Drawing(
        says=str(content.get("verdict", "")),
        rows=rows,
        code=(
            "import json\nfrom pathlib import Path\n\n"
            f"content = json.loads(Path({str(folder / 'comparison.json')!r}).read_text())\n"
            "result = [number['number'] for number in content['numbers']]\n"
        ),
        notes=tuple(map(str, content.get("notes", ()))),
    )


def _row(number: Mapping[str, Any]) -> Mapping[str, Any]:
    means = {name: sum(values) / len(values) if values else "–" for name, values in number["values"].items()}
    verdicts = ", ".join(str(entry["verdict"]) for entry in number["against_first"])
    return {"number": number["number"], **means, "against the first": verdicts}
