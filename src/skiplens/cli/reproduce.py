"""`skiplens reproduce`: do the runs of a study, judge its claims, write the gallery."""

import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from skiplens.base import InvalidInputError, Settings, option
from skiplens.base.files import require_writable
from skiplens.cli import console
from skiplens.cli.flags import with_settings

if TYPE_CHECKING:
    from skiplens.papers.reproduction import Reproduction
    from skiplens.sweeps.sweep import Status, Watch


class ReproduceSettings(Settings):
    """What to reproduce, and where."""

    target: str = option("all", "all, STUDY or STUDY/ITEM; see skiplens studies.", positional=True)
    preset: Literal["smoke", "laptop", "paper"] = option("laptop", "smoke (seconds), laptop (minutes) or paper.")
    seed: int = option(0, "Names every random draw.")
    workers: int | None = option(None, "Processes of this machine; one for each core if not given.")
    scheduler: str | None = option(None, "Address of a Dask scheduler, such as tcp://head:8786, instead of --workers.")
    recorded: str | None = option(None, "A verdicts.json to compare with, instead of the record of the package.")


@with_settings(ReproduceSettings)
def reproduce(
    settings: ReproduceSettings,
    out: Annotated[
        Path | None,
        typer.Option(help="Folder for index.html, verdicts.json, tables/ and figures/.", show_default="runs/PRESET"),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Write the verdicts to standard output as JSON.")] = False,
) -> None:
    """Reproduce figures, tables and theorems of the papers, with a verdict on every claim.

    Runs are kept: the same command goes on where it was stopped, and does nothing twice.

    Example: [bold]skiplens reproduce littwin2020_tangent/fig2[/]
    """
    from skiplens import papers as studies
    from skiplens.papers.reproduction import ReproductionEffort, write_folder
    from skiplens.papers.study import VARIES
    from skiplens.sweeps.dask_executor import DaskCluster
    from skiplens.sweeps.executor import Executor, LocalWorkers, ThisProcess, available_cores

    chosen = studies.choose(settings.target)  # a wrong name is reported before any work is done
    if settings.scheduler is not None and settings.workers is not None:
        raise InvalidInputError("Give --workers for this machine or --scheduler for a cluster, not both.")
    workers = available_cores() if settings.workers is None else settings.workers
    executor: Executor = ThisProcess() if workers == 1 else LocalWorkers(workers)
    if settings.scheduler is not None:
        executor = DaskCluster(settings.scheduler)
    folder = out or Path("runs") / settings.preset
    require_writable(folder)
    recorded = Path(settings.recorded) if settings.recorded else None
    with _shown() as watch:
        effort = ReproductionEffort(settings.preset, settings.seed)
        reproduction = studies.reproduce(chosen, folder, effort, executor, watch, recorded)
    page = write_folder(reproduction, folder)
    if as_json:
        console.print_json([verdict.to_json() for verdict in reproduction.verdicts])
    else:
        _summarise(reproduction, page)
    if any(verdict.recorded != VARIES for verdict in reproduction.changed):  # that others vary is known
        raise typer.Exit(1)


def _summarise(reproduction: "Reproduction", page: Path) -> None:
    from skiplens.papers.study import VARIES
    from skiplens.report.gallery import number, shown_word

    rows = [
        {
            "claim": verdict.name,
            "paper": verdict.paper,
            "ours": number(verdict.ours),
            "±": number(verdict.uncertainty),
            "verdict": shown_word(verdict.verdict, verdict.ours)
            + (f" (recorded: {verdict.recorded})" if verdict.changed else ""),
        }
        for verdict in reproduction.verdicts
    ]
    words = Counter(shown_word(verdict.verdict, verdict.ours) for verdict in reproduction.verdicts)
    console.print_table(f"Verdicts, preset {reproduction.preset}, seed {reproduction.seed}", rows)
    for result in reproduction.results:
        for problem in result.problems:
            console.complain(f"{result.study.name}/{result.item.name}: {problem}")
        for reason, runs in Counter(result.left_out).items():
            line = f"{result.study.name}/{result.item.name}: runs left out: {runs}. {reason}"
            console.err().print(line, markup=False, soft_wrap=True)
    for verdict in reproduction.changed:
        before = "its word changes between seeds" if verdict.recorded == VARIES else f"recorded is {verdict.recorded}"
        console.complain(f"{verdict.name} is {shown_word(verdict.verdict, verdict.ours)}; {before}.")
    counts = ", ".join(f"{count} {word}" for word, count in words.most_common())
    console.out().print(f"{counts}. The gallery is in {page}", markup=False)


@contextmanager
def _shown() -> Iterator["Watch"]:
    """How the sweep stands: one line that changes on a terminal; in a log file one for each tenth of the runs."""
    if sys.stderr.isatty():
        with console.err().status("Starting") as status:
            yield lambda standing: status.update(str(standing))
        return
    told: list[int] = []

    def line(standing: "Status") -> None:
        tenth = 10 * (standing.done + standing.failed) // max(1, standing.total)
        if tenth not in told:
            told.append(tenth)
            console.err().print(str(standing), markup=False, soft_wrap=True)

    yield line
