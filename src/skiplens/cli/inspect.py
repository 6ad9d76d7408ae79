"""`skiplens inspect`: look at a model, write the page."""

from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from skiplens.base import InvalidInputError, option
from skiplens.base.files import require_writable
from skiplens.cli import console
from skiplens.cli.flags import LOSS_HELP, ModelSettings, with_settings

if TYPE_CHECKING:
    from skiplens.report import Report

FORCE_HELP = "Replace what is in the folder also where this command was interrupted and has less."


class FailOn(StrEnum):
    """Severities that a pipeline can stop at."""

    warning = "warning"
    critical = "critical"


class InspectSettings(ModelSettings):
    """What to look at, and how."""

    lens: tuple[str, ...] = option((), "Lenses, separated by commas; all of them if none is named.")
    blocks: tuple[str, ...] = option((), "Modules in which residual joins are looked for, separated by commas.")
    loss: str | None = option(None, LOSS_HELP)
    samples: int | None = option(None, "Samples that each lens looks at if it can afford them.")
    minutes: float | None = option(None, "About how long all lenses together may take on two cores.")
    no_pilot: bool = option(False, "Name the change to begin with, but do not try it.")
    verify: bool = option(False, "Try each suggested change on a copy: its number again, and a training race.")
    verify_seconds: float = option(40.0, "Time for --verify; it decides how many steps a race has.")


@with_settings(InspectSettings)
def inspect(
    settings: InspectSettings,
    out: Annotated[Path, typer.Option(help="Folder for report.html, readings.json and figures/.")] = Path(
        "runs/inspect"
    ),
    as_json: Annotated[bool, typer.Option("--json", help="Write the readings to standard output as JSON.")] = False,
    force: Annotated[bool, typer.Option("--force", help=FORCE_HELP)] = False,
    full: Annotated[bool, typer.Option("--full", help="Print what every lens saw, with its table.")] = False,
    fail_on: Annotated[FailOn | None, typer.Option(help="Exit with status 1 if a finding is as bad as this.")] = None,
) -> None:
    """Look at a model and write a report.

    Example: [bold]skiplens inspect zoo:mnist_residual --out runs/mnist[/]
    """
    from skiplens import report as reports
    from skiplens.cli.models import data_for, loss_named, model_for
    from skiplens.graph.batch import take
    from skiplens.report.lenses import choose

    choose(settings.lens)  # a wrong name and a folder that cannot be written are reported before any work is done
    loss = loss_named(settings.loss)
    require_writable(out)
    model = model_for(settings)
    data = data_for(settings.model, settings, model)
    race = reports.RaceOptions(seconds=settings.verify_seconds, seed=settings.seed)
    if settings.verify:  # reads its samples again: the data may be an iterator that ends
        data = take(data, race.samples)
    with console.progress_shown() as progress:
        asked: dict[str, Any] = {"samples": settings.samples, "minutes": settings.minutes, "seed": settings.seed}
        asked |= {"lenses": settings.lens, "blocks": settings.blocks, "loss": loss, "name": settings.model}
        asked |= {"pilot": not settings.no_pilot}
        report = reports.inspect(model, data, **asked, progress=progress)
        if settings.verify:
            report = reports.verify(report, model, data, loss=loss, options=race, progress=progress)
    taken = {reading.kind for reading in report.readings}
    page = report.write(console.place_of(out, force, lambda folder: not _kinds_in(folder) <= taken))
    if as_json:
        console.print_json(report.to_json())
    else:
        _print(report, full)
        console.out().print(f"The report is in {page}", markup=False)
    if fail_on is not None and any(found.severity in _AS_BAD[fail_on] for found in report.findings):
        raise typer.Exit(1)


_AS_BAD = {FailOn.warning: ("warning", "critical"), FailOn.critical: ("critical",)}


def _print(report: "Report", full: bool) -> None:
    """What was looked at, the verdict and the findings; all that was seen only if asked for."""
    from skiplens.report.lenses import spared

    sections = report.sections()
    looked_at = next((section.sentence for section in sections if section.anchor == "structure"), report.title)
    console.out().print(looked_at, markup=False)
    console.out().print(report.headline, markup=False, style="bold")
    if report.advice:
        console.out().print(report.advice, markup=False)
    if few := spared(report.readings):
        console.out().print(few, markup=False)
    console.print_findings([(found.severity, found.sentence, report.change_with_proof(found)) for found in report.told])
    for section in sections if full else ():
        console.out().print(section.sentence, markup=False, style="bold")
        if section.rows:
            console.print_table(section.title, section.rows)
        for note in section.notes:
            console.out().print(note, markup=False, style="dim")
    for lenses, message in report.missing:
        console.complain(f"{lenses}: {message}")
    if not full:
        console.out().print("--full prints what every lens saw.", markup=False, style="dim")


def _kinds_in(folder: Path) -> set[str]:
    """The kinds of readings that the report in `folder` has; none where there is no report."""
    from skiplens.report import Report

    try:
        return {reading.kind for reading in Report.load(folder).readings}
    except InvalidInputError:
        return set()
