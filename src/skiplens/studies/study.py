"""A study: the card of a paper and its items, each with runs, figures, tables and claims."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, get_args

from skiplens.core.errors import InvalidInputError
from skiplens.core.nearest import did_you_mean
from skiplens.figures import Figure
from skiplens.studies.claim import Claim
from skiplens.sweeps import Run

Preset = Literal["smoke", "laptop", "paper"]
PRESETS: tuple[Preset, ...] = get_args(Preset)
"""Seconds, to see that everything runs; minutes on two cores, enough to decide; the paper's own sizes."""


@dataclass(frozen=True)
class PaperCard:
    """What is known about a paper.

    Attributes:
        title: Of the paper.
        authors: As they are cited.
        year: Of the version that was read.
        link: Where it is.
        question: What the paper asks, in a sentence.
        errata: Where its mistakes are listed, relative to the documentation.
    """

    title: str
    authors: str
    year: int
    link: str
    question: str
    errata: str


@dataclass(frozen=True)
class Table:
    """Raw numbers of an item: rows with the same columns."""

    name: str
    rows: tuple[Mapping[str, Any], ...]


@dataclass(frozen=True)
class Item:
    """A figure, table or theorem.

    Attributes:
        name: As in ``skiplens reproduce STUDY/NAME``.
        title: What it is about, in a few words.
        runs: The independent runs for a preset and a seed; items may share runs.
        claims: What the paper says.
        figures: From the readings of the runs, in their order.
        tables: The raw numbers, from the same readings.
        deviations: Where we do something else than the paper, or fill a gap it leaves.
    """

    name: str
    title: str
    runs: Callable[[Preset, int], Sequence[Run]]
    claims: tuple[Claim, ...]
    figures: Callable[[Sequence[Any]], tuple[Figure, ...]]
    tables: Callable[[Sequence[Any]], tuple[Table, ...]]
    deviations: tuple[str, ...] = ()


@dataclass(frozen=True)
class Study:
    """All items of a paper."""

    name: str
    card: PaperCard
    items: tuple[Item, ...]

    def item(self, name: str) -> Item:
        """The item called `name`; an unknown name is an error that offers the nearest ones."""
        for item in self.items:
            if item.name == name:
                return item
        known = [item.name for item in self.items]
        raise InvalidInputError(f"The study {self.name} has no item {name!r}. {did_you_mean(name, known)}")
