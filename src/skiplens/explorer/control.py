"""What a person can change in a view: controls, their values, and the words that stand for them in an address."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from typing import Any
from urllib.parse import parse_qsl, urlencode

from skiplens.base.errors import InvalidInputError, require_known

Condition = tuple[str, tuple[Any, ...]]
"""The name of a control that comes before, and the values of it for which a control is shown."""

Options = tuple[tuple[str, str], ...]  # pairs of the word in the address and the words on the page
SEPARATOR = ","
_MOST_CHARACTERS = 40  # of refused words that a message repeats
_MOST_WORDS = 100  # of one query; no view has as many controls


class RefusedError(InvalidInputError):
    """Words that are no value of a control; the message is shown beside its field."""


@dataclass(frozen=True)
class _Named:
    """What all controls have."""

    name: str  # in the address and in the values of the view
    label: str  # beside the field
    _: KW_ONLY
    help: str = ""  # a sentence that a student understands
    only_when: Condition | None = None  # for which values of another control it is shown; always if not given


@dataclass(frozen=True)
class Slider(_Named):
    """A number between `low` and `high`."""

    low: float
    high: float
    _: KW_ONLY
    default: float
    step: float = 1  # of the slider; the field takes any number. A logarithmic slider has none.
    whole: bool = False  # whether values are whole numbers
    logarithmic: bool = False  # whether the slider moves in factors

    def parse(self, words: str) -> float:
        """The number that `words` are, or an error that says which are allowed."""
        try:
            number = float(words)
        except ValueError:
            number = math.nan
        if not math.isfinite(number):
            problem = "is no number"
        elif not self.low <= number <= self.high:
            problem = "is outside of the range"
        elif self.whole and number != int(number):
            problem = "is not a whole number"
        else:
            return int(number) if self.whole else number
        kind = "a whole number" if self.whole else "a number"
        raise RefusedError(f"{_quoted(words)} {problem}. Give {kind} from {self.low:g} to {self.high:g}.")

    def words(self, value: float) -> str:
        """The value as it stands in the field and in the address."""
        return str(value) if isinstance(value, int) else f"{value:.12g}"


@dataclass(frozen=True)
class Choice(_Named):
    """One of several words."""

    options: Options
    _: KW_ONLY
    default: str

    def parse(self, words: str) -> str:
        """The option, or an error that offers the nearest ones."""
        return _one_of(words, self.options)

    def words(self, value: str) -> str:
        """The value itself."""
        return value


@dataclass(frozen=True)
class Switch(_Named):
    """On or off."""

    _: KW_ONLY
    default: bool

    def parse(self, words: str) -> bool:
        """Whether it is on, or an error that says how to write it."""
        if words not in ("on", "off"):
            raise RefusedError(f"{_quoted(words)} is neither on nor off.")
        return words == "on"

    def words(self, value: bool) -> str:
        """On or off."""
        return "on" if value else "off"


@dataclass(frozen=True)
class Several(_Named):
    """Any number of words. Changing them renews the other controls of the view, which may depend on them."""

    options: Options
    _: KW_ONLY
    default: tuple[str, ...] = ()

    def parse(self, words: str) -> tuple[str, ...]:
        """The options in the order in which they were chosen, each once."""
        chosen = (part for part in words.split(SEPARATOR) if part)
        return tuple(dict.fromkeys(_one_of(part, self.options) for part in chosen))

    def words(self, value: tuple[str, ...]) -> str:
        """The options with commas between them; the words of options have none."""
        return SEPARATOR.join(value)


Control = Slider | Choice | Switch | Several


def _one_of(words: str, options: Options) -> str:
    names = [name for name, _ in options]
    require_known(words, names, f"There is no {_quoted(words)}.", RefusedError)
    return words


def _quoted(words: str) -> str:
    return repr(words if len(words) <= _MOST_CHARACTERS else f"{words[:_MOST_CHARACTERS]}…")


def shown_names(controls: Sequence[Control], values: Mapping[str, Any]) -> set[str]:
    """The names of the controls that mean something for these values; one that hangs on a hidden one is hidden too."""
    shown: set[str] = set()
    for control in controls:
        name, wanted = control.only_when or ("", ())
        if not name or (name in shown and values[name] in wanted):
            shown.add(control.name)
    return shown


@dataclass(frozen=True)
class State:
    """What the controls stand at."""

    values: Mapping[str, Any]  # of every control; the default where the words were refused
    refused: Mapping[str, str]  # why, by the name of the control
    unknown: tuple[str, ...] = ()  # names that no control has


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
    return State(values, refused, tuple(name for name in words if name not in values))
