"""A section of the page: what a reading says in words, a table and figures."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from skiplens.figures import Figure
from skiplens.readings import Reading
from skiplens.reports.drawing import BlockCell


@dataclass(frozen=True)
class Section:
    """Everything the page shows of one reading.

    `sentence` is for a person in a hurry; `facts` are label and value; `rows` make a table, and a row that speaks of a
    residual block names it under "block"; `cells` are the blocks that are drawn on top of the page.
    """

    anchor: str
    title: str
    sentence: str
    facts: tuple[tuple[str, str], ...] = ()
    rows: tuple[Mapping[str, Any], ...] = ()
    notes: tuple[str, ...] = ()
    cells: tuple[BlockCell, ...] = ()
    figures: tuple[Figure, ...] = ()
    provenance: tuple[tuple[str, str], ...] = ()


def number_in_words(value: float) -> str:
    """Three digits, and powers of ten where the number is very large or small."""
    return f"{value:,.3g}" if value == 0 or 1e-3 <= abs(value) < 1e5 else f"{value:.2e}"


def provenance_of(reading: Reading) -> tuple[tuple[str, str], ...]:
    """Where the reading comes from, as label and value."""
    origin = reading.provenance
    versions = ", ".join(f"{package} {version}" for package, version in origin.versions.items())
    settings = ", ".join(f"{name} = {value}" for name, value in origin.settings.items())
    return (
        ("settings", settings),
        ("seed", "none" if origin.seed is None else str(origin.seed)),
        ("device", origin.device),
        ("versions", versions),
        ("started", origin.started),
        ("took", f"{origin.seconds:.2f} s"),
    )
