"""Write the pictures of a page and what they were drawn from: the command line that all scripts here share."""

import argparse
import json
import os
import re
from collections.abc import Iterable
from dataclasses import fields
from pathlib import Path
from typing import Any

from skiplens.base.optional_imports import optional_import
from skiplens.plots.figure import DARK as SHADES
from skiplens.plots.figure import Figure, Mark
from skiplens.plots.matplotlib_file import save_figure

FOLDER = Path(__file__).parents[2] / "docs/images"
RECORD = Path(__file__).parent / "drawn.json"
PLACES = 5  # numbers kept of each series: its ends and what lies evenly between
INK, PAPER = "#e2e4e9", "none"
_SHADES = "\n".join(
    f'[style*="{part}: {light.lower()}"] {{ {part}: {dark.lower()} !important }}'
    for light, dark in SHADES.items()
    for part in ("stroke", "fill")
)
DARK = f"""<style type="text/css">@media (prefers-color-scheme: dark) {{
:root {{ fill: {INK} }}
[style*="fill: #ffffff"] {{ fill: {PAPER} !important }}
[style*="stroke: #000000"] {{ stroke: {INK} !important }}
[style*="fill: #000000"] {{ fill: {INK} !important }}
{_SHADES}
}}</style>
"""
"""A picture follows the look of the page it stands in: white becomes clear, black light, and colours as on any page."""


def draw(figures: Iterable[Figure], prefix: str, description: str | None) -> None:
    """Write each figure as `<prefix><name>.svg` (and PNG if asked) into the folder that the command names."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", nargs="?", type=Path, default=FOLDER)
    parser.add_argument("--png", action="store_true", help="write PNG files beside the SVG files")
    options = parser.parse_args()
    os.environ["SOURCE_DATE_EPOCH"] = "0"  # no date in the files
    matplotlib = optional_import("matplotlib", "drawing the documentation's figures")
    with matplotlib.rc_context({"svg.hashsalt": "skiplens"}):
        for figure in figures:
            path = options.folder / f"{prefix}{figure.name}.svg"
            save_figure(figure, path)
            path.write_text(with_dark_look(path.read_text("utf-8")), "utf-8")
            if options.png:
                save_figure(figure, path.with_suffix(".png"))
            if options.folder == FOLDER:
                keep({path.stem: summary(figure)})


def with_dark_look(svg: str) -> str:
    """The picture with colours for a dark page, once, whatever it had before."""
    plain = re.sub(r'<style type="text/css">@media.*?</style>\n', "", svg, flags=re.DOTALL)
    return plain.replace("<defs>", f"{DARK}<defs>", 1)


def summary(figure: Figure) -> dict[str, Any]:
    """What the figure was drawn from: its words, and a few numbers of each of its series."""
    return {"title": figure.title, "axes": [figure.x_label, figure.y_label], "marks": list(map(_of_mark, figure.marks))}


def _of_mark(mark: Mark) -> dict[str, Any]:
    kept: dict[str, Any] = {"kind": type(mark).__name__, "name": mark.name}
    for field in fields(mark):
        values = _flat(getattr(mark, field.name))
        if values:
            kept[field.name] = [len(values), *(float(f"{value:.4g}") for value in _spaced(values))]
    return kept


def _flat(values: Any) -> list[float]:
    if isinstance(values, tuple):
        return [number for value in values for number in _flat(value)]
    return [float(values)] if isinstance(values, int | float) and not isinstance(values, bool) else []


def _spaced(values: list[float]) -> list[float]:
    finite = [value for value in values if abs(value) < float("inf")]
    last = len(finite) - 1
    return [finite[last * place // (PLACES - 1)] for place in range(PLACES)] if finite else []


def keep(found: dict[str, Any]) -> None:
    """Put what figures were drawn from beside what is known of the others."""
    record = json.loads(RECORD.read_text("utf-8")) if RECORD.is_file() else {}
    lines = [f"{json.dumps(name)}: {json.dumps(value)}" for name, value in sorted({**record, **found}.items())]
    RECORD.write_text("{\n" + ",\n".join(lines) + "\n}\n", "utf-8")
