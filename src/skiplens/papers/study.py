"""A study: the card of a paper and its items, each with runs, figures, tables and claims."""

import dataclasses
import importlib
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, get_args

from skiplens.base.errors import InvalidInputError, did_you_mean, pick
from skiplens.plots.figure import Figure
from skiplens.sweeps.run import Run

Preset = Literal["smoke", "laptop", "paper"]

PRESETS: tuple[Preset, ...] = get_args(Preset)
"""Seconds, to see that everything runs; minutes on two cores, enough to decide; the paper's own sizes."""


@dataclass(frozen=True)
class PaperCard:
    """What is known about a paper; the year is that of the version that was read.

    Its `question` is a sentence, and its `errata` are listed at this place, relative to the documentation.
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


Word = Literal["reproduced", "corrected", "opposite", "differs", "not attempted"]
"""`corrected`: the printed statement does not hold, and another one, shown beside it and tested, does; `opposite`: its
contrary does."""


VARIES = "varies"  # what the record says of a claim whose word changed between seeds


@dataclass(frozen=True)
class Judgement:
    """What the readings say.

    Attributes:
        verdict: The word.
        ours: Our number; where a claim is about many, the one farthest from it.
        uncertainty: Half the width of its confidence interval.
        tolerance: How far from the paper's number (or beyond its bound) still counts as the same.
        explanation: What was compared, in a sentence, with the corrected statement where there is one.
    """

    verdict: Word
    ours: float | None = None
    uncertainty: float | None = None
    tolerance: float | None = None
    explanation: str = ""


Judge = Callable[[Sequence[Any]], Judgement]  # decides a claim from the readings of the item's runs, in their order


@dataclass(frozen=True)
class Claim:
    """One statement of a paper that numbers can decide.

    Attributes:
        name: Within its item, in snake_case.
        statement: As the paper means it, in a sentence.
        printed_at: Figure, theorem or equation.
        paper: The paper's number or relation.
        judge: Decides from the readings of the item's runs, in their order.
    """

    name: str
    statement: str
    printed_at: str
    paper: str
    judge: Judge


def claim(printed_at: str, paper: str) -> Callable[[Judge], Claim]:
    """Turns a judge into its claim: named as the judge without the underscore, stated as the judge's docstring says."""
    return lambda judge: Claim(judge.__name__.removeprefix("_"), judge.__doc__ or "", printed_at, paper, judge)


def claims(judge: Callable[..., Judgement], *rows: Sequence[Any]) -> tuple[Claim, ...]:
    """Claims that one judge decides, a row each: name, statement, place and printed number, then what it is given."""

    def of_row(name: str, statement: str, printed_at: str, paper: str, *given: Any) -> Claim:
        return Claim(name, statement, printed_at, paper, lambda readings: judge(readings, *given))

    return tuple(of_row(*row) for row in rows)


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
        return pick({item.name: item for item in self.items}, name, f"The study {self.name} has no item {name!r}.")


@dataclass(frozen=True)
class Verdict:
    """What the paper says, what we found, and the word for it."""

    study: str
    item: str
    claim: str
    statement: str
    printed_at: str
    paper: str
    ours: float | None
    uncertainty: float | None
    tolerance: float | None
    verdict: Word
    deviations: tuple[str, ...]
    explanation: str = ""
    recorded: str | None = None

    @property
    def name(self) -> str:
        """`study/item/claim`."""
        return f"{self.study}/{self.item}/{self.claim}"

    @property
    def changed(self) -> bool:
        """Whether the record has another word, such as `VARIES`: one of the two was chance, or something broke."""
        return self.recorded is not None and self.verdict != self.recorded

    def to_json(self) -> dict[str, Any]:
        """The entry; numbers that JSON lacks become null."""
        return {
            name: None if isinstance(value, float) and not math.isfinite(value) else value
            for name, value in dataclasses.asdict(self).items()
        }


MODULES = {
    name: f"skiplens.papers.{name}.study"
    for name in ("li2016_shortcuts", "littwin2016_ensembles", "littwin2020_tangent", "macdonald2023_regularity", "ours")
}
"""Where each study is; its module has `STUDY`, and is imported when the study is asked for."""


def studies() -> tuple[Study, ...]:
    """All studies."""
    return tuple(study(name) for name in MODULES)


def study(name: str) -> Study:
    """The study called `name`; an unknown name is an error that offers the nearest ones."""
    if name not in MODULES:
        raise InvalidInputError(f"There is no study {name!r}. {did_you_mean(name, [*MODULES, 'all'])}")
    return importlib.import_module(MODULES[name]).STUDY


def choose(target: str) -> tuple[tuple[Study, Item], ...]:
    """The items that `all`, `STUDY` or `STUDY/ITEM` names, each with its study."""
    if target == "all":
        return tuple((found, item) for found in studies() for item in found.items)
    name, _, item_name = target.partition("/")
    found = study(name)
    return tuple((found, item) for item in ((found.item(item_name),) if item_name else found.items))
