"""What is written for the views in data files beside them: controls, notes, words of figures, code to take away."""

import json
from functools import cache
from importlib.resources import files
from typing import Any

from skiplens.explorer.control import Choice, Control, Slider, Switch
from skiplens.papers.statistics import figure
from skiplens.plots.figure import Figure, Mark

_KINDS: dict[str, type[Slider | Choice | Switch]] = {"slider": Slider, "choice": Choice, "switch": Switch}


@cache
def written(name: str) -> dict[str, Any]:
    """The content of a data file of the explorer."""
    content: dict[str, Any] = json.loads(files("skiplens.explorer").joinpath(name).read_text(encoding="utf-8"))
    return content


def controls_of(view: str) -> tuple[Control, ...]:
    """The controls of a view, in the order of the page."""
    return tuple(_control(**entry) for entry in written("controls.json")[view])


def _control(kind: str, **entry: Any) -> Control:
    if "options" in entry:
        entry["options"] = tuple(entry["options"].items())
    if "only_when" in entry:
        name, wanted = entry["only_when"]
        entry["only_when"] = (name, tuple(wanted))
    return _KINDS[kind](**entry)


def notes_of(name: str) -> tuple[str, ...]:
    """What a person should know before believing a view."""
    return tuple(written("notes.json")[name])


def snippet(name: str, **told: Any) -> str:
    """The lines of Python of that name, with what is `told` in their places."""
    return "".join(f"{line}\n" for line in written("snippets.json")[name]).format(**told)


def worded(name: str, *marks: Mark, **told: Any) -> Figure:
    """The figure of that name with its written title, caption and labels, which may have places for what is `told`."""
    words = written("figures.json")[name]
    title, caption = (words[part].format(**told) for part in ("title", "caption"))
    return figure((name, title), caption, (words["x"], words["y"]), marks, words.get("log", ""))
