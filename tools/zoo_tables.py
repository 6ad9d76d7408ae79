"""Write the tables of `docs/zoo.md` from the code: `python tools/zoo_tables.py`; a test keeps them in step."""

import dataclasses
from pathlib import Path
from typing import Literal, get_args, get_origin, get_type_hints

from skiplens import zoo

PAGE = Path(__file__).parents[1] / "docs/zoo.md"
START, END = "<!-- tables: start -->", "<!-- tables: end -->"


def tables() -> str:
    """The table of the networks, then one list of options a network."""
    return "\n\n".join([_networks(), *(_options(zoo.entry(name)) for name in zoo.names())])


def page(text: str) -> str:
    """The page `text` with the tables between its two marks made new."""
    before, _, rest = text.partition(START)
    _, _, after = rest.partition(END)
    return f"{before}{START}\n{tables()}\n{END}{after}"


def _networks() -> str:
    lines = [
        "| name | parameters | depth | joins | input | study | what it is |",
        "|---|---:|---:|---:|---|---|---|",
    ]
    for row in zoo.summary():
        shape = "×".join(map(str, row.input_shape))
        cells = (f"`{row.name}`", f"{row.parameters:,}", str(row.depth), str(row.joins), shape, row.paper)
        lines.append(f"| {' | '.join(cells)} | {row.description} |")
    return "\n".join(lines)


def _options(entry: zoo.Entry) -> str:
    kinds = get_type_hints(entry.options)
    rows = [
        f"| `{field.name}` | `{_word(field.default)}` | {field.metadata['help']}{_choices(kinds[field.name])} |"
        for field in dataclasses.fields(entry.options)
    ]
    if not rows:
        return f"### {entry.name}\n\nNo options."
    return "\n".join([f"### {entry.name}", "", "| option | default | meaning |", "|---|---|---|", *rows])


def _choices(kind: object) -> str:
    return f" ({', '.join(map(str, get_args(kind)))})" if get_origin(kind) is Literal else ""


def _word(default: object) -> str:
    return ",".join(map(str, default)) if isinstance(default, tuple) else str(default)


if __name__ == "__main__":
    PAGE.write_text(page(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
