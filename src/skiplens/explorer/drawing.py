"""What a view shows for the values of its controls."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from skiplens.figures import Figure


@dataclass(frozen=True)
class Check:
    """A condition and whether it is met."""

    state: Literal["holds", "fails", "unknown"]
    name: str
    why: str


@dataclass(frozen=True)
class Download:
    """A file that can be taken away: what it is called, its address on this server, what is in it."""

    name: str
    address: str
    about: str = ""


@dataclass(frozen=True)
class Drawing:
    """Pictures, numbers and words.

    Attributes:
        figures: The first is the main one; their names are unique.
        says: What is to be seen, in one to three sentences.
        facts: Label and value of the few numbers that matter.
        rows: A table, in rows of the same names.
        checks: A list of conditions.
        code: Lines of Python that make the same numbers; they leave the main one in `result`.
        notes: What a person should know before believing it.
        downloads: Files beside the exported pictures.
    """

    figures: tuple[Figure, ...] = ()
    says: str = ""
    facts: tuple[tuple[str, str], ...] = ()
    rows: tuple[Mapping[str, Any], ...] = ()
    checks: tuple[Check, ...] = ()
    code: str = ""
    notes: tuple[str, ...] = ()
    downloads: tuple[Download, ...] = ()
