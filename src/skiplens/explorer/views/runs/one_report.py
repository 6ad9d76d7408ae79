"""A report opened again: its verdict, or one of its readings with its figures drawn anew."""

from pathlib import Path
from typing import Literal

from skiplens.explorer.control import Choice
from skiplens.explorer.drawing import Check, Drawing
from skiplens.findings import Finding
from skiplens.reports import Report
from skiplens.reports.section import Section
from skiplens.reports.sections import SECTIONS, section_of

VERDICT = "verdict"
_STATES: dict[str, Literal["holds", "fails", "unknown"]] = {"critical": "fails", "warning": "fails", "note": "unknown"}


def reading_control(reports: tuple[Report, ...]) -> Choice:
    """Which of the readings that all reports have to look at."""
    kinds = [{reading.kind for reading in report.readings} for report in reports]
    shared = [
        reading
        for reading in reports[0].readings
        if all(reading.kind in own for own in kinds) and type(reading) in SECTIONS
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
        code=f"from skiplens.reports import Report\n\nresult = Report.load({str(folder)!r}).verdict\n",
    )


def _check(found: Finding) -> Check:
    return Check(_STATES.get(found.severity, "unknown"), found.sentence, f"What helps: {found.change}")


def _code(kind: str, folder: Path) -> str:
    return (
        "from skiplens.figures import figures_of\n"
        "from skiplens.reports import Report\n\n"
        f"readings = Report.load({str(folder)!r}).readings\n"
        f"result = [figure for reading in readings if reading.kind == {kind!r} for figure in figures_of(reading)]\n"
    )
