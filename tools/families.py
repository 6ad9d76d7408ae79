"""Look at the families of `tests/families/table.py` with every lens and write `docs/families.md`.

`python -m tools.families` looks at all of them, `python -m tools.families ViT Mamba` at these again; what was seen of
the others stays. The numbers are kept in `benchmarks/results/families.json`.
"""

import json
import sys
import time
import warnings
from pathlib import Path
from typing import Any

import torch
from tests.families.table import FAMILIES, SAMPLES

import skiplens as sl
from skiplens.base.errors import SkiplensError
from skiplens.report.lenses import LENSES
from skiplens.signal.structure import StructureReading
from skiplens.trainability.reading import Forecast

ROOT = Path(__file__).parents[1]
RESULTS, PAGE = ROOT / "benchmarks/results/families.json", ROOT / "docs/families.md"

HEAD = f"""# Families of networks

Small configurations of Hugging Face `transformers` with random weights, in evaluation mode, looked at with all
{len(LENSES)} lenses on {SAMPLES} samples with random targets. *Counted* are the residual blocks that a person counts
in the modelling code of the configuration; `+` stands before sums inside a block that are residual by construction.
*Seconds* are those of one processor. *Forecast* speaks of these few random targets. *Found* lists findings that are
more than a note.

Written by `python -m tools.families`; the counts are held by `tests/families`.

| family | counted | found blocks | seconds | forecast | found | lenses that did not finish |
|---|---|---|---|---|---|---|
"""


def looked_at(name: str) -> dict[str, Any]:
    """What every lens says of one family."""
    family = FAMILIES[name]
    model, _ = family.build()
    data, start = family.data(), time.process_time()
    try:
        report = sl.inspect(model, data, name=name)
    except SkiplensError as error:
        return {"refused": str(error)}
    seconds = time.process_time() - start
    structure, forecast = report.reading(StructureReading), report.reading(Forecast)
    parents = () if structure is None else structure.parents
    return {
        "blocks": [parents.count(None), len(parents) - parents.count(None)],
        "assumed": structure is not None and "assumed" in structure.shortcuts,
        "seconds": round(seconds),
        "forecast": "none" if forecast is None else forecast.sentence.partition(":")[0].lower(),
        "found": sorted({finding.rule for finding in report.findings if finding.severity != "note"} - {"forecast"}),
        "unfinished": {problem.lens: problem.message for problem in report.problems},
    }


def page(rows: dict[str, dict[str, Any]]) -> str:
    """The page with the table."""
    lines = []
    for name, family in FAMILIES.items():
        row = rows.get(name, {"refused": "not looked at yet"})
        counted = _blocks(family.blocks, family.inner)
        if "refused" in row:
            lines.append(f"| {name} | {counted} | – | – | – | – | all: {row['refused']} |")
            continue
        found = _blocks(*row["blocks"]) + " (assumed from its modules)" * row["assumed"]
        names = (", ".join(f"`{rule}`" for rule in row["found"]), ", ".join(sorted(row["unfinished"])))
        cells = (name, counted, found, str(row["seconds"]), row["forecast"], *(words or "–" for words in names))
        lines.append(f"| {' | '.join(cells)} |")
    return HEAD + "\n".join(lines) + "\n\n" + _reasons(rows)


def _blocks(outermost: int, inner: int) -> str:
    return f"{outermost} + {inner}" if inner else str(outermost)


def _reasons(rows: dict[str, dict[str, Any]]) -> str:
    """Why lenses did not finish, one line for each reason."""
    said: dict[str, list[str]] = {}
    for name, row in rows.items():
        for lens, message in row.get("unfinished", {}).items():
            said.setdefault(message.partition(". ")[0].partition(" (")[0], []).append(f"{name} ({lens})")
    lines = [f"* {', '.join(where)}: {reason.rstrip('.')}." for reason, where in sorted(said.items())]
    return "## Why\n\n" + "\n".join(lines) + "\n"


def main(names: list[str]) -> None:
    """Look at these families, or at all, and write the page."""
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    rows = json.loads(RESULTS.read_text("utf-8")) if RESULTS.is_file() else {}
    for name in names or FAMILIES:
        rows[name] = looked_at(name)
        rows = {known: rows[known] for known in FAMILIES if known in rows}
        RESULTS.write_text(json.dumps(rows, indent=1, ensure_ascii=False) + "\n", "utf-8")
        PAGE.write_text(page(rows), "utf-8")
        sys.stdout.write(f"{name}: {rows[name]}\n")


if __name__ == "__main__":
    main(sys.argv[1:])
