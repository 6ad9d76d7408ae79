"""A view: controls and what is drawn for their values; it knows nothing of the page around it."""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from skiplens.base.errors import InvalidInputError
from skiplens.base.progress import Progress
from skiplens.explorer.control import Control
from skiplens.plots.figure import Figure

Values = Mapping[str, Any]
"""The value of each control by its name."""


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


class View(ABC):
    """One page of the explorer.

    All methods are pure: what they return depends on their arguments alone (and, for runs, on the files in a folder),
    so two open pages cannot see each other.

    Attributes:
        name: Where the page is, as in ``/paths``.
        title: What it is called.
        lead: The question it answers, in a sentence.
        fixed_controls: What can be changed, where it is the same for every address.
    """

    name: ClassVar[str]
    title: ClassVar[str]
    lead: ClassVar[str]
    fixed_controls: ClassVar[tuple[Control, ...]] = ()

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
