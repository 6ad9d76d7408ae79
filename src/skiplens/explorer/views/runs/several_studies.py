"""Studies beside each other: the verdict on each claim in each of them."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from skiplens.explorer.drawing import Drawing
from skiplens.explorer.views.runs.content import load_verdicts

_NAME = ("study", "item", "claim")


def draw_studies(labels: Sequence[str], folders: Sequence[Path]) -> Drawing:
    """A table of all claims, and whether the studies agree on them."""
    by_claim = [{_claim(row): row for row in load_verdicts(folder)} for folder in folders]
    claims = list(dict.fromkeys(claim for found in by_claim for claim in found))
    rows = [
        {
            "claim": claim,
            **{label: _words(found.get(claim)) for label, found in zip(labels, by_claim, strict=True)},
        }
        for claim in claims
    ]
    differing = sum(len({found[claim].get("verdict") for found in by_claim if claim in found}) > 1 for claim in claims)
    return Drawing(
        says=f"{len(claims)} claims; the runs have different verdicts on {differing} of them.",
        rows=tuple(rows),
        code=_code(folders),
    )


def _claim(row: Mapping[str, Any]) -> str:
    return "/".join(str(row.get(name)) for name in _NAME)


def _words(row: Mapping[str, Any] | None) -> str:
    if row is None:
        return "–"
    ours = row.get("ours")
    return f"{row.get('verdict')} ({ours:.4g})" if isinstance(ours, float | int) else str(row.get("verdict"))


def _code(folders: Sequence[Path]) -> str:
    names = [str(folder / "verdicts.json") for folder in folders]
    return (
        "import json\n"
        "from pathlib import Path\n\n"
        f"files = {names!r}\n"
        "result = [[verdict['verdict'] for verdict in json.loads(Path(file).read_text())] for file in files]\n"
    )
