"""What `skiplens reproduce` leaves behind: index.html, verdicts.json, tables/ and figures/."""

import csv
import io
import json
import platform
from collections.abc import Sequence
from itertools import groupby
from pathlib import Path

from skiplens.core.files import write_content
from skiplens.figures.matplotlib_file import save_figure
from skiplens.readings.provenance import versions
from skiplens.reports.gallery import GalleryItem, GalleryPaper, gallery_page
from skiplens.studies.reproduction import ItemResult, Reproduction
from skiplens.studies.study import Study, Table
from skiplens.sweeps.local_executor import available_cores


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
