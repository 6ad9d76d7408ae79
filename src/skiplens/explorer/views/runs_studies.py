"""A study opened again: verdicts, the paper's figures drawn anew from the stored readings, and its tables."""

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from skiplens.base.errors import InvalidInputError
from skiplens.base.progress import Progress, track
from skiplens.explorer.control import Choice, Control, Switch
from skiplens.explorer.view import Drawing, Values
from skiplens.explorer.views.runs_content import Table, load_environment, load_reading, load_table, load_verdicts
from skiplens.papers.study import MODULES, PRESETS, Item, study
from skiplens.plots.figure import Figure, Line, Points

NONE = "none"

_COLUMNS = ("claim", "paper", "ours", "uncertainty", "verdict")


def study_controls(folder: Path, words: Mapping[str, str]) -> tuple[Control, ...]:
    """Which item, and whether its figures or one of its tables are drawn."""
    items = list(dict.fromkeys(_name(row) for row in load_verdicts(folder)))
    if not items:
        return ()
    item = Choice(
        "item",
        "Item",
        help="A figure, table or theorem of the paper.",
        options=tuple((name, name) for name in items),
        default=items[0],
    )
    chosen = words.get("item", items[0])
    tables = tables_of(folder, chosen if chosen in items else items[0])
    table = Choice(
        "table",
        "Draw",
        help="The paper's figures from the stored readings, or columns of a table of raw numbers.",
        options=((NONE, "the paper's figures"), *((name, name) for name in tables)),
        default=NONE,
    )
    path = tables.get(words.get("table", NONE))
    return (item, table, *(_column_controls(path) if path is not None else ()))


def tables_of(folder: Path, item: str) -> dict[str, Path]:
    """The tables of an item by their names."""
    stem = item.replace("/", "_")
    return {path.stem: path for path in sorted((folder / "tables").glob("*.csv")) if path.stem.startswith(f"{stem}_")}


def draw_study(folder: Path, values: Values, measured: Any) -> Drawing:
    """The verdicts of an item with its figures, or with a chart of a table."""
    rows = load_verdicts(folder)
    if "item" not in values:
        return Drawing(says="The study has no verdicts yet.")
    own = [row for row in rows if _name(row) == values["item"]]
    counts = Counter(str(row.get("verdict")) for row in own)
    says = f"{values['item']}: {', '.join(f'{count} {word}' for word, count in counts.items())}."
    told = tuple({name: _cell(row.get(name)) for name in _COLUMNS} for row in own)
    environment = {name: str(value) for name, value in load_environment(folder).items()}
    facts = tuple((name, environment.pop(name)) for name in ("preset", "seed") if name in environment)
    origin = ", ".join(f"{name} {value}" for name, value in environment.items())
    if values["table"] != NONE:
        path = tables_of(folder, values["item"])[values["table"]]
        table = load_table(path)
        code = _table_code(path, values)
        return Drawing((chart(table, values),), says, facts, table.rows, code=code, notes=(origin,))
    figures, problem = measured or ((), "")
    notes = tuple(note for note in (problem, origin) if note)
    return Drawing(figures, says, facts, told, code=_code(folder, values["item"]), notes=notes)


def redraw(folder: Path, item: str, progress: Progress) -> tuple[tuple[Figure, ...], str]:
    """The figures of an item from the readings in the folder's store, and why there are none where there are none."""
    found = _known(item)
    environment = load_environment(folder)
    preset, seed = environment.get("preset"), environment.get("seed")
    if found is None or preset not in PRESETS or not isinstance(seed, int):
        return (), "The study or its preset is not known here, so its figures cannot be drawn again; its tables can."
    keys = dict.fromkeys(run.key for run in found.runs(preset, seed))  # a run that is named twice counts once
    paths = [folder / "store" / f"{key}.npz" for key in keys]
    missing = sum(not path.is_file() for path in paths)
    if missing:
        return (), f"{missing} of {len(paths)} readings are not in the folder, so figures cannot be drawn again."
    readings = [load_reading(path) for path in track(paths, "reading what was measured", len(paths), progress)]
    return found.figures(readings), ""


def _known(name: str) -> Item | None:
    study_name, _, item = name.partition("/")
    if study_name not in MODULES:
        return None
    try:
        return study(study_name).item(item)
    except InvalidInputError:
        return None


def _column_controls(path: Path) -> tuple[Control, ...]:
    """The columns of a table; none where it cannot be read, which drawing it will say."""
    try:
        table = load_table(path)
    except Exception:
        return ()
    numeric = tuple((name, name) for name in table.numeric)
    if len(numeric) < 2:
        return ()
    series = tuple((name, name) for name in table.grouping(MOST_SERIES))
    return (
        Choice("x", "Along", help="The column along the picture.", options=numeric, default=numeric[0][0]),
        Choice("y", "Up", help="The column that is drawn.", options=numeric, default=numeric[-1][0]),
        Choice("by", "One line for each", help="Tells rows apart.", options=((NONE, "nothing"), *series), default=NONE),
        Switch("x_log", "Logarithmic along", help="For columns that span factors.", default=False),
        Switch("y_log", "Logarithmic up", help="For columns that span factors.", default=False),
    )


def _name(row: Mapping[str, Any]) -> str:
    return f"{row.get('study')}/{row.get('item')}"


def _cell(value: Any) -> Any:
    return "" if value is None else value


def _table_code(path: Path, values: Values) -> str:
    names = (values["x"], values["y"]) if "x" in values else ()
    cells = [f"float(row[{name!r}] or 'nan')" for name in names]
    if names and values["by"] != NONE:
        cells.append(f"row[{values['by']!r}]")
    columns = ", ".join(cells) or "row"
    return (
        f"import csv\n\nwith open({str(path)!r}, newline='') as file:\n"
        f"    result = [({columns}) for row in csv.DictReader(file)]\n"
    )


def _code(folder: Path, item: str) -> str:
    return (
        "import json\n"
        "from pathlib import Path\n\n"
        f"verdicts = json.loads(Path({str(folder / 'verdicts.json')!r}).read_text())\n"
        f"result = [v['verdict'] for v in verdicts if f\"{{v['study']}}/{{v['item']}}\" == {item!r}]\n"
    )


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
        code=_code_of_several(folders),
    )


def _claim(row: Mapping[str, Any]) -> str:
    return "/".join(str(row.get(name)) for name in _NAME)


def _words(row: Mapping[str, Any] | None) -> str:
    if row is None:
        return "–"
    ours = row.get("ours")
    return f"{row.get('verdict')} ({ours:.4g})" if isinstance(ours, float | int) else str(row.get("verdict"))


def _code_of_several(folders: Sequence[Path]) -> str:
    names = [str(folder / "verdicts.json") for folder in folders]
    return (
        "import json\n"
        "from pathlib import Path\n\n"
        f"files = {names!r}\n"
        "result = [[verdict['verdict'] for verdict in json.loads(Path(file).read_text())] for file in files]\n"
    )


MOST_SERIES = 12

_EVERYTHING = "none"


def chart(table: Table, values: Values) -> Figure:
    """One column against another, one line for each cell of a third."""
    if "x" not in values:
        raise InvalidInputError("The table has fewer than two columns of numbers, so there is nothing to draw.")
    x, y, by = values["x"], values["y"], values["by"]
    marks = [mark for name in _names(table, by) for mark in _series(table, (x, y, by), name, values)]
    return Figure(
        "columns",
        f"{y} against {x}",
        f"{len(table.rows)} rows of the table{'' if by == _EVERYTHING else f', one line for each {by}'}.",
        x,
        y,
        tuple(marks),
        x_log=values["x_log"],
        y_log=values["y_log"],
    )


def _names(table: Table, by: str) -> list[object]:
    return [None] if by == _EVERYTHING else list(dict.fromkeys(table.columns[by]))


def _series(table: Table, names: tuple[str, str, str], cell: object, values: Values) -> list[Line | Points]:
    x, y, by = names
    keys = [None] * len(table.columns[x]) if by == _EVERYTHING else table.columns[by]
    pairs = zip(table.columns[x], table.columns[y], keys, strict=True)
    own = sorted((along, up) for along, up, key in pairs if key == cell and _drawable(along, up, values))
    label = "" if by == _EVERYTHING else f"{by} = {cell}"
    places, heights = tuple(along for along, _ in own), tuple(up for _, up in own)
    if by == _EVERYTHING or len(set(places)) < len(places):
        return [Points(places, heights, label)]
    return [Line(places, heights, label)]


def _drawable(along: float, up: float, values: Values) -> bool:
    if not (math.isfinite(along) and math.isfinite(up)):
        return False
    return (along > 0 or not values["x_log"]) and (up > 0 or not values["y_log"])
