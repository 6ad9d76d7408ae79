"""A view: controls and what is drawn for their values; it knows nothing of the page around it."""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal

from skiplens.base import InvalidInputError, Progress
from skiplens.explorer.control import Control
from skiplens.plots.figure import Figure, Mark

Values = Mapping[str, Any]  # the value of each control by its name


class UnknownViewError(InvalidInputError):
    """A name that no view has."""


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
    """Pictures, numbers and words."""

    figures: tuple[Figure, ...] = ()  # the first is the main one; their names are unique
    says: str = ""  # what is to be seen, in one to three sentences
    facts: tuple[tuple[str, str], ...] = ()  # label and value of the few numbers that matter
    rows: tuple[Mapping[str, Any], ...] = ()  # a table, in rows of the same names
    checks: tuple[Check, ...] = ()  # a list of conditions
    code: str = ""  # lines of Python that make the same numbers; they leave the main one in `result`
    notes: tuple[str, ...] = ()  # what a person should know before believing it
    downloads: tuple[Download, ...] = ()  # files beside the exported pictures
    cards: tuple[Mapping[str, str], ...] = ()  # what can be opened: name, address, kind, about, says, severity
    page: str = ""  # the address of a whole page of this server that is shown in a frame
    beside: int = 1  # so many of the first figures are main ones and stand side by side

    def haunted(self, marks: Mapping[str, tuple[Mark, ...]], says: str, *facts: tuple[str, str]) -> "Drawing":
        """The same with a model on its figures, by their names, and what there is to say of it."""
        figures = tuple(replace(one, marks=(*one.marks, *marks.get(one.name, ()))) for one in self.figures)
        return replace(self, figures=figures, says=f"{self.says} {says}", facts=(*self.facts, *facts))


class View(ABC):
    """One page of the explorer.

    All methods are pure: what they return depends on their arguments alone (and, for runs, on the files in a folder),
    so two open pages cannot see each other.
    """

    name: ClassVar[str]  # where the page is, as in ``/paths``
    title: ClassVar[str]  # what it is called
    lead: ClassVar[str]  # the question it answers, in a sentence
    fixed_controls: ClassVar[tuple[Control, ...]] = ()  # what can be changed, where it is the same for every address

    def controls(self, words: Mapping[str, str]) -> tuple[Control, ...]:
        """What can be changed; `words` are those of the address, for views whose controls depend on each other."""
        return self.fixed_controls

    @abstractmethod
    def draw(self, values: Values, measured: Any = None) -> Drawing:
        """What is shown at once; `measured` is what `measure` returned, once it has."""

    def measurement(self, values: Values) -> Values | None:
        """The values that the measurement of this view depends on; None where there is nothing to measure."""
        return None

    def measure(self, values: Values, progress: Progress) -> Any:
        """What is measured for the values that `measurement` gave; it may take long and reports its progress."""
        raise NotImplementedError(f"{type(self).__name__} announces a measurement and has none.")


def view_named(views: Iterable[View], name: str) -> View:
    """The view of that name, or an error that says which there are."""
    known = tuple(views)
    found = next((view for view in known if view.name == name), None)
    if found is None:
        raise UnknownViewError(f"There is no view {name!r}; choose one of {', '.join(view.name for view in known)}.")
    return found
