"""Reports beside each other: their curves in one picture, their numbers in one table."""

from collections.abc import Sequence
from pathlib import Path

from skiplens.explorer.drawing import Drawing
from skiplens.explorer.views.runs.one_report import VERDICT
from skiplens.readings.reading import KINDS
from skiplens.reports import Report
from skiplens.reports.comparison.contender import Contender
from skiplens.reports.comparison.curves import overlays
from skiplens.reports.comparison.measured import in_words, measure

ALONE = "difference"


def draw_reports(labels: Sequence[str], reports: Sequence[Report], kind: str, folders: Sequence[Path]) -> Drawing:
    """One reading of all reports, or their verdicts."""
    contenders = [Contender(label, (report,)) for label, report in zip(labels, reports, strict=True)]
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
        code=_code(kind, folders),
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
        "from skiplens.reports import Report\n\n"
        f"folders = {names!r}\n"
        "result = [Report.load(folder).verdict for folder in folders]\n"
    )


def _code(kind: str, folders: Sequence[Path]) -> str:
    names = [str(folder) for folder in folders]
    return (
        "from skiplens.reports import Report\n"
        "from skiplens.reports.comparison.key_numbers import key_numbers\n\n"
        f"folders = {names!r}\n"
        f"readings = [r for folder in folders for r in Report.load(folder).readings if r.kind == {kind!r}]\n"
        "result = [{number.label: number.value for number in key_numbers(reading)} for reading in readings]\n"
    )
