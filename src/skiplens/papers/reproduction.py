"""Reproduce items of papers: do their runs, judge their claims, keep what a page needs."""

import csv
import dataclasses
import io
import json
import platform
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path

from skiplens.base.files import write_content
from skiplens.papers.recorded import recorded_verdicts
from skiplens.papers.study import Item, Judgement, Preset, Study, Table, Verdict, verdict_of
from skiplens.plots.figure import Figure
from skiplens.plots.matplotlib_file import save_figure
from skiplens.readings.reading import Reading, versions
from skiplens.readings.store import Store
from skiplens.report.gallery import GalleryItem, GalleryPaper, gallery_page
from skiplens.sweeps.executor import Executor, available_cores
from skiplens.sweeps.run import Run, claim_folder
from skiplens.sweeps.sweep import Swept, Watch, sweep, unwatched


@dataclass(frozen=True)
class ItemResult:
    """What came out of one item.

    Attributes:
        study: Its study.
        item: The item.
        verdicts: One for each claim.
        figures: Empty where runs failed.
        tables: Empty where runs failed.
        problems: Why runs failed, each once.
        seconds: Computing time of its runs, those done earlier included.
    """

    study: Study
    item: Item
    verdicts: tuple[Verdict, ...]
    figures: tuple[Figure, ...] = ()
    tables: tuple[Table, ...] = ()
    problems: tuple[str, ...] = ()
    seconds: float = 0.0


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
    def worse(self) -> tuple[Verdict, ...]:
        """The verdicts that are worse than the recorded ones."""
        return tuple(verdict for verdict in self.verdicts if verdict.is_worse)


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
        chosen: Items with their studies, as `catalogue.choose` gives them.
        folder: Runs are kept in its `store/`; a folder belongs to one preset.
        effort: Preset and seed.
        executor: Where runs are done; in this process if not given.
        watch: Called as the runs go on.
        recorded: A verdicts.json to compare with instead of the shipped record.
    """
    words = recorded_verdicts(effort.preset, recorded)
    claim_folder(folder, effort.preset)
    runs = {(study.name, item.name): _runs(item, effort) for study, item in chosen}
    everything = [run for of_item in runs.values() for run in of_item]
    swept = sweep(everything, Store(Path(folder) / "store"), executor, watch)
    results = (_result(study, item, runs[study.name, item.name], swept) for study, item in chosen)
    compared = (_compared(result, words if runs[result.study.name, result.item.name] else {}) for result in results)
    return Reproduction(effort.preset, effort.seed, tuple(compared))


def _runs(item: Item, effort: ReproductionEffort) -> tuple[Run, ...]:
    """The item's runs, each once: a reading that stood twice would count as two seeds."""
    return tuple({run.key: run for run in item.runs(effort.preset, effort.seed)}.values())


def _result(study: Study, item: Item, runs: Sequence[Run], swept: Swept) -> ItemResult:
    problems = {swept.failures[run.key].error: None for run in runs if run.key in swept.failures}
    if problems:
        judgement = Judgement("not attempted", explanation=f"Runs failed: {'; '.join(problems)}")
        return ItemResult(study, item, _verdicts(study, item, [judgement] * len(item.claims)), problems=tuple(problems))
    readings = [swept.readings[run.key] for run in runs]
    return ItemResult(
        study,
        item,
        _verdicts(study, item, [claim.judge(readings) for claim in item.claims]),
        item.figures(readings),
        item.tables(readings),
        seconds=_seconds(readings),
    )


def _verdicts(study: Study, item: Item, judgements: Sequence[Judgement]) -> tuple[Verdict, ...]:
    return tuple(
        verdict_of((study.name, item.name), claim, judgement, item.deviations)
        for claim, judgement in zip(item.claims, judgements, strict=True)
    )


def _compared(result: ItemResult, words: Mapping[str, str]) -> ItemResult:
    """With the recorded words; an item without runs lacks its data, which is no worse than having them."""
    verdicts = (dataclasses.replace(verdict, recorded=words.get(verdict.name)) for verdict in result.verdicts)
    return dataclasses.replace(result, verdicts=tuple(verdicts))


def _seconds(readings: Sequence[Reading]) -> float:
    return sum(reading.provenance.seconds for reading in readings)


def write_folder(reproduction: Reproduction, folder: Path | str) -> Path:
    """Write everything into `folder`; returns the page's path."""
    folder = Path(folder)
    for result in reproduction.results:
        _write_item(result, folder)
    environment = {"preset": reproduction.preset, "seed": reproduction.seed, **_machine(), **versions()}
    write_content(folder / "environment.json", _json(environment))
    write_content(folder / "verdicts.json", _json([verdict.to_json() for verdict in reproduction.verdicts]))
    page = folder / "index.html"
    facts = [(name, str(value)) for name, value in environment.items()]
    write_content(page, gallery_page(_papers(reproduction.results), facts))
    return page


def csv_text(table: Table) -> str:
    """The table as CSV: all columns that occur, in order of first appearance."""
    columns = list(dict.fromkeys(name for row in table.rows for name in row))
    text = io.StringIO()
    writer = csv.DictWriter(text, columns, restval="", lineterminator="\n")
    writer.writeheader()
    writer.writerows(table.rows)
    return text.getvalue()


def _write_item(result: ItemResult, folder: Path) -> None:
    for figure in result.figures:
        for ending in ("png", "svg"):
            save_figure(figure, folder / "figures" / f"{_stem(result)}_{figure.name}.{ending}")
    for table in result.tables:
        write_content(folder / _place(result, table), csv_text(table))


def _papers(results: Sequence[ItemResult]) -> list[GalleryPaper]:
    by_study = groupby(results, key=lambda result: result.study.name)
    return [_paper(list(group)) for _, group in by_study]


def _paper(results: list[ItemResult]) -> GalleryPaper:
    study: Study = results[0].study
    card = study.card
    byline = f"{card.authors} ({card.year}), {card.link}."
    errata = f"page {card.errata.removesuffix('.md')} of the documentation"
    items = tuple(_item(result) for result in results)
    return GalleryPaper(study.name, card.title, byline, card.question, items, errata)


def _item(result: ItemResult) -> GalleryItem:
    return GalleryItem(
        result.item.name,
        result.item.title,
        tuple({**verdict.to_json(), "worse": verdict.is_worse} for verdict in result.verdicts),
        result.figures,
        tuple((f"{table.name}, raw numbers (CSV)", _place(result, table)) for table in result.tables),
        result.item.deviations,
        result.problems,
    )


def _stem(result: ItemResult) -> str:
    return f"{result.study.name}_{result.item.name}"


def _place(result: ItemResult, table: Table) -> str:
    return f"tables/{_stem(result)}_{table.name}.csv"


def _machine() -> dict[str, str | int]:
    """System, processor, and the cores that this process may use."""
    return {
        "machine": f"{platform.system()} {platform.machine()}",
        "processor": _processor(),
        "cores": available_cores(),
    }


def _processor() -> str:
    """The model of the processor where Linux tells it, else what the system calls it."""
    file = Path("/proc/cpuinfo")
    lines = file.read_text(encoding="utf-8").splitlines() if file.is_file() else []
    models = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(models, "") or platform.processor() or platform.machine()


def _json(value: object) -> str:
    return json.dumps(value, indent=1, ensure_ascii=False, allow_nan=False) + "\n"
