"""What a person can change in a view: each control says its range, its default and what it means."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from typing import Any
from urllib.parse import parse_qsl, urlencode

from skiplens.base.errors import InvalidInputError, did_you_mean

Condition = tuple[str, tuple[Any, ...]]
"""The name of a control that comes before, and the values of it for which a control is shown."""

SEPARATOR = ","

_DIGITS = 3  # of values that a logarithmic slider stops at

_MOST_CHARACTERS = 40  # of refused words that a message repeats


class RefusedError(InvalidInputError):
    """Words that are no value of a control; the message is shown beside its field."""


@dataclass(frozen=True)
class Slider:
    """A number between `low` and `high`.

    Attributes:
        name: In the address and in the values of the view.
        label: Beside the field.
        help: A sentence that a student understands.
        low: Smallest value.
        high: Largest value.
        default: Where it stands at first.
        step: Of the slider; the field takes any number. A logarithmic slider has none.
        whole: Whether values are whole numbers.
        logarithmic: Whether the slider moves in factors.
        only_when: For which values of another control it is shown; always if not given.
    """

    name: str
    label: str
    _: KW_ONLY
    help: str
    low: float
    high: float
    default: float
    step: float = 1
    whole: bool = False
    logarithmic: bool = False
    only_when: Condition | None = None

    def parse(self, words: str) -> float:
        """The number that `words` are, or an error that says which are allowed."""
        try:
            number = float(words)
        except ValueError:
            number = math.nan
        if not math.isfinite(number):
            raise RefusedError(f"{_quoted(words)} is no number. {self._allowed}")
        if not self.low <= number <= self.high:
            raise RefusedError(f"{_quoted(words)} is outside of the range. {self._allowed}")
        if self.whole and number != int(number):
            raise RefusedError(f"{_quoted(words)} is not a whole number. {self._allowed}")
        return int(number) if self.whole else number

    def words(self, value: float) -> str:
        """The value as it stands in the field and in the address."""
        return str(value) if isinstance(value, int) else f"{value:.12g}"

    @property
    def _allowed(self) -> str:
        kind = "a whole number" if self.whole else "a number"
        return f"Give {kind} from {self.low:g} to {self.high:g}."


@dataclass(frozen=True)
class Choice:
    """One of several words; `options` are pairs of the word in the address and the words on the page."""

    name: str
    label: str
    _: KW_ONLY
    help: str
    options: tuple[tuple[str, str], ...]
    default: str
    only_when: Condition | None = None

    def parse(self, words: str) -> str:
        """The option, or an error that offers the nearest ones."""
        return _one_of(words, self.options)

    def words(self, value: str) -> str:
        """The value itself."""
        return value


@dataclass(frozen=True)
class Switch:
    """On or off."""

    name: str
    label: str
    _: KW_ONLY
    help: str
    default: bool
    only_when: Condition | None = None

    def parse(self, words: str) -> bool:
        """Whether it is on, or an error that says how to write it."""
        if words not in ("on", "off"):
            raise RefusedError(f"{_quoted(words)} is neither on nor off.")
        return words == "on"

    def words(self, value: bool) -> str:
        """On or off."""
        return "on" if value else "off"


@dataclass(frozen=True)
class Several:
    """Any number of words. Changing them renews the other controls of the view, which may depend on them."""

    name: str
    label: str
    _: KW_ONLY
    help: str
    options: tuple[tuple[str, str], ...]
    default: tuple[str, ...] = ()
    only_when: Condition | None = None

    def parse(self, words: str) -> tuple[str, ...]:
        """The options in the order in which they were chosen, each once."""
        chosen = (part for part in words.split(SEPARATOR) if part)
        return tuple(dict.fromkeys(_one_of(part, self.options) for part in chosen))

    def words(self, value: tuple[str, ...]) -> str:
        """The options with commas between them; the words of options have none."""
        return SEPARATOR.join(value)


Control = Slider | Choice | Switch | Several


def rounded(number: float) -> float:
    """The number with as many digits as a logarithmic slider has."""
    return float(f"{number:.{_DIGITS}g}")


def shown_names(controls: Sequence[Control], values: Mapping[str, Any]) -> set[str]:
    """The names of the controls that mean something for these values; one that hangs on a hidden one is hidden too."""
    shown: set[str] = set()
    for control in controls:
        if control.only_when is None or (control.only_when[0] in shown and _holds(control.only_when, values)):
            shown.add(control.name)
    return shown


def _holds(condition: Condition, values: Mapping[str, Any]) -> bool:
    name, wanted = condition
    return values[name] in wanted


def _one_of(words: str, options: tuple[tuple[str, str], ...]) -> str:
    names = [name for name, _ in options]
    if words not in names:
        raise RefusedError(f"There is no {_quoted(words)}. {did_you_mean(words, names)}")
    return words


def _quoted(words: str) -> str:
    return repr(words if len(words) <= _MOST_CHARACTERS else f"{words[:_MOST_CHARACTERS]}…")


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
