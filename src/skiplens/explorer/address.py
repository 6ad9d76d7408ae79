"""The address holds the state of a view: values of controls as words of the query, and back."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import parse_qsl, urlencode

from skiplens.explorer.control import Control, RefusedError

_MOST_WORDS = 100  # of one query; no view has as many controls


@dataclass(frozen=True)
class State:
    """What the controls stand at.

    Attributes:
        values: Of every control; the default where the words were refused.
        refused: Why, by the name of the control.
        unknown: Names that no control has.
    """

    values: Mapping[str, Any]
    refused: Mapping[str, str]
    unknown: tuple[str, ...] = ()


def words_of(query: str) -> dict[str, str]:
    """The words of a query such as ``"?depth=3&shape=resnet"``; the first of each name, none if it is no query."""
    try:
        pairs = parse_qsl(query.removeprefix("?"), keep_blank_values=True, max_num_fields=_MOST_WORDS)
    except ValueError:
        return {}
    return dict(reversed(pairs))


def query_of(controls: Sequence[Control], values: Mapping[str, Any]) -> str:
    """The query that says all values, so that a link means the same where defaults are others."""
    words = {control.name: control.words(values[control.name]) for control in controls}
    return f"?{urlencode(words)}" if words else ""


def read(controls: Sequence[Control], words: Mapping[str, str]) -> State:
    """What the controls stand at when they are given these words; a control without any has its default."""
    values: dict[str, Any] = {}
    refused: dict[str, str] = {}
    for control in controls:
        default: Any = control.default
        values[control.name] = default
        if control.name in words:
            try:
                values[control.name] = control.parse(words[control.name])
            except RefusedError as error:
                refused[control.name] = f"{error} The page shows {control.words(default) or 'none'}."
    known = {control.name for control in controls}
    return State(values, refused, tuple(name for name in words if name not in known))
