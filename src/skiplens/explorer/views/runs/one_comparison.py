"""A comparison of models opened again: its numbers."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from skiplens.explorer.drawing import Drawing
from skiplens.explorer.views.runs.content import load_comparison


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
