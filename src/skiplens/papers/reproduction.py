"""Reproduce items of papers: do their runs, judge their claims, compare with the record, write a folder with a page."""

import csv
import io
import json
import platform
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from importlib.resources import files
from itertools import groupby
from pathlib import Path

import torch

from skiplens.base.errors import InvalidInputError
from skiplens.base.files import read_json, write_content
from skiplens.papers.study import Item, Judgement, Preset, Study, Table, Verdict
from skiplens.plots.figure import Figure
from skiplens.plots.matplotlib_file import save_figure
from skiplens.readings.reading import versions
from skiplens.readings.store import Store
from skiplens.report.gallery import GalleryItem, GalleryPaper, gallery_page
from skiplens.sweeps.executor import Executor, LocalWorkers, ThisProcess, available_cores
from skiplens.sweeps.run import claim_folder
from skiplens.sweeps.sweep import Swept, Watch, sweep, unwatched


@dataclass(frozen=True)
class ItemResult:
    """What came out of one item of a study; there are no figures and tables where runs failed."""

    study: Study
    item: Item
    verdicts: tuple[Verdict, ...]
    figures: tuple[Figure, ...] = ()
    tables: tuple[Table, ...] = ()
    problems: tuple[str, ...] = ()  # why runs failed, each once
    left_out: tuple[str, ...] = ()  # why runs were not tried, one entry a run
    seconds: float = 0.0  # computing time of its runs, those done earlier included

    @property
    def stem(self) -> str:
        """The beginning of the names of its files."""
        return f"{self.study.name}_{self.item.name}"

    def table_file(self, table: Table) -> str:
        """Where a table is, in the folder."""
        return f"tables/{self.stem}_{table.name}.csv"


@dataclass(frozen=True)
class Reproduction:
    """What came out of all items that were asked for."""

    preset: Preset
    seed: int
    results: tuple[ItemResult, ...]

    @property
    def verdicts(self) -> tuple[Verdict, ...]:
        """All verdicts, in the order of the items."""
        return tuple(verdict for result in self.results for verdict in result.verdicts)

    @property
    def changed(self) -> tuple[Verdict, ...]:
        """The verdicts with another word than the recorded ones: each is an alarm."""
        return tuple(verdict for verdict in self.verdicts if verdict.changed)


@dataclass(frozen=True)
class ReproductionEffort:
    """How large a reproduction is and which random numbers it draws."""

    preset: Preset = "laptop"
    seed: int = 0


def reproduce(
    chosen: Sequence[tuple[Study, Item]],
    folder: Path | str,
    effort: ReproductionEffort = ReproductionEffort(),  # noqa: B008 - frozen
    executor: Executor | None = None,
    watch: Watch = unwatched,
    recorded: Path | None = None,
) -> Reproduction:
    """The verdicts, figures and tables of the chosen items.

    Args:
        chosen: Items with their studies, as `choose` gives them.
        folder: Runs are kept in its `store/`; a folder belongs to one preset.
        effort: Preset and seed.
        executor: Where runs are done; in this process if not given.
        watch: Called as the runs go on.
        recorded: A verdicts.json to compare with instead of the shipped record.
    """
    words = recorded_verdicts(effort.preset, recorded)
    claim_folder(folder, effort.preset)
    # Each run once: a reading that stood twice would count as two seeds.
    store = Store(Path(folder) / "store")
    here = isinstance(executor or ThisProcess(), ThisProcess | LocalWorkers) and not torch.cuda.is_available()
    planned = [{run.key: run for run in item.runs(effort.preset, effort.seed)} for _, item in chosen]
    # What lacks its data or a GPU is judged by what the store has, perhaps from another machine.
    lacks = {
        key: run.lacks or ("This machine has no GPU for them." if here and run.needs.gpus else "")
        for of_item in planned
        for key, run in of_item.items()
    }
    runs = [
        {key: run for key, run in of_item.items() if not lacks[key] or store.path(key).exists()} for of_item in planned
    ]
    swept = sweep([run for of_item in runs for run in of_item.values()], store, executor, watch)
    results = []
    for (study, item), done, of_item in zip(chosen, runs, planned, strict=True):
        # An item without runs lacks its data, which is no change: it is compared with nothing.
        result = _result(study, item, tuple(done), swept, words if done else {})
        results.append(replace(result, left_out=tuple(lacks[key] for key in of_item if key not in done)))
    return Reproduction(effort.preset, effort.seed, tuple(results))


def _result(study: Study, item: Item, keys: tuple[str, ...], swept: Swept, recorded: Mapping[str, str]) -> ItemResult:
    problems = tuple(dict.fromkeys(swept.failures[key].error for key in keys if key in swept.failures))
    readings = [] if problems else [swept.readings[key] for key in keys]
    failed = Judgement("not attempted", explanation=f"Runs failed: {'; '.join(problems)}")
    verdicts = []
    for claim in item.claims:
        judgement = failed if problems else claim.judge(readings)
        said = (claim.name, claim.statement, claim.printed_at, claim.paper)
        known = recorded.get(f"{study.name}/{item.name}/{claim.name}")
        own = {**vars(judgement), "deviations": item.deviations, "recorded": known}
        verdicts.append(Verdict(study.name, item.name, *said, **own))
    if problems:
        return ItemResult(study, item, tuple(verdicts), problems=problems)
    seconds = sum((reading.provenance.seconds for reading in readings), 0.0)
    return ItemResult(study, item, tuple(verdicts), item.figures(readings), item.tables(readings), seconds=seconds)


def recorded_verdicts(preset: str, path: Path | None = None) -> dict[str, str]:
    """What each claim (`study/item/claim`) is known to give at `preset`, as shipped or by another verdicts.json."""
    return shipped_record().get(preset, {}) if path is None else words_in(path)


def shipped_record() -> dict[str, dict[str, str]]:
    """The record of the package, by preset and claim; `tools/record_verdicts.py` writes it."""
    return json.loads(files("skiplens.papers").joinpath("recorded.json").read_text("utf-8"))


def words_in(path: Path) -> dict[str, str]:
    """The word of each claim in a verdicts.json."""
    try:
        entries = read_json(path)
        return {f"{entry['study']}/{entry['item']}/{entry['claim']}": str(entry["verdict"]) for entry in entries}
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise InvalidInputError(f"{path} does not hold verdicts ({error}). Give a verdicts.json.") from error


def write_folder(reproduction: Reproduction, folder: Path | str) -> Path:
    """Write everything into `folder`; returns the page's path."""
    folder = Path(folder)
    for result in reproduction.results:
        for figure in result.figures:
            stem = f"{result.stem}_{figure.name}"
            save_figure(figure, *(folder / "figures" / f"{stem}.{ending}" for ending in ("png", "svg")))
        for table in result.tables:
            write_content(folder / result.table_file(table), csv_text(table))
    environment = {
        "preset": reproduction.preset,
        "seed": reproduction.seed,
        "machine": f"{platform.system()} {platform.machine()}",
        "processor": _processor(),
        "cores": available_cores(),
        **versions(),
    }
    write_content(folder / "environment.json", _json(environment))
    write_content(folder / "verdicts.json", _json([verdict.to_json() for verdict in reproduction.verdicts]))
    page = folder / "index.html"
    by_study = groupby(reproduction.results, key=lambda result: result.study.name)
    papers = [_paper(list(results)) for _, results in by_study]
    write_content(page, gallery_page(papers, [(name, str(value)) for name, value in environment.items()]))
    return page


def csv_text(table: Table) -> str:
    """The table as CSV: all columns that occur, in order of first appearance."""
    columns = list(dict.fromkeys(name for row in table.rows for name in row))
    text = io.StringIO()
    writer = csv.DictWriter(text, columns, restval="", lineterminator="\n")
    writer.writeheader()
    writer.writerows(table.rows)
    return text.getvalue()


def _paper(results: list[ItemResult]) -> GalleryPaper:
    """What the page shows of one paper."""
    items = [
        GalleryItem(
            result.item.name,
            result.item.title,
            tuple({**verdict.to_json(), "changed": verdict.changed} for verdict in result.verdicts),
            result.figures,
            tuple((f"{table.name}, raw numbers (CSV)", result.table_file(table)) for table in result.tables),
            result.item.deviations,
            result.problems,
        )
        for result in results
    ]
    name, card = results[0].study.name, results[0].study.card
    byline = f"{card.authors} ({card.year}), {card.link}."
    errata = f"page {card.errata.removesuffix('.md')} of the documentation"
    return GalleryPaper(name, card.title, byline, card.question, tuple(items), errata)


def _processor() -> str:
    """The model of the processor where Linux tells it, else what the system calls it."""
    file = Path("/proc/cpuinfo")
    lines = file.read_text(encoding="utf-8").splitlines() if file.is_file() else []
    models = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(models, "") or platform.processor() or platform.machine()


def _json(value: object) -> str:
    return json.dumps(value, indent=1, ensure_ascii=False, allow_nan=False) + "\n"
