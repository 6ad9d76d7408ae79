"""A section of the page: what a reading says in words, a table and figures."""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from skiplens.base.words import in_words
from skiplens.plots.figure import Figure, drawn
from skiplens.plots.network_drawing import NetworkDrawing
from skiplens.readings.finding import Rule
from skiplens.readings.reading import Reading

Draw = Callable[[Any], Figure | None]  # from a reading; None where it has nothing to show


@dataclass(frozen=True)
class Section:
    """Everything the page shows of one reading.

    `sentence` is for a person in a hurry; `facts` are label and value; `rows` make a table, and a row that speaks of a
    residual block names it under "block"; `blocks` names the blocks that are drawn on top of the page. With a
    `question` the page shows a card: the number on its `scale` and the first figure; the rest unfolds. A network that
    was changed stands `after` the drawing of the one that it was; `code` is to be pasted.
    """

    anchor: str
    title: str
    sentence: str
    facts: tuple[tuple[str, str], ...] = ()
    rows: tuple[Mapping[str, Any], ...] = ()
    notes: tuple[str, ...] = ()
    blocks: tuple[str, ...] = ()
    figures: tuple[Figure, ...] = ()
    provenance: tuple[tuple[str, str], ...] = ()
    question: str = ""
    scale: "Scale | None" = None
    drawing: NetworkDrawing | None = None
    after: NetworkDrawing | None = None
    code: str = ""
    severity: str = ""  # of the worst finding of its lens

    @classmethod
    def of(cls, reading: Reading, title: str, sentence: str, figures: tuple[Draw, ...], **told: Any) -> "Section":
        """The section of a reading: those of its figures that have something to show, and where it comes from."""
        origin = provenance_of(reading)
        return cls(reading.kind, title, sentence, figures=drawn(reading, figures), provenance=origin, **told)


LIMIT = 2 / 3
"""Where a threshold stands between the two ends of a scale."""


@dataclass(frozen=True)
class Scale:
    """One number between the best that it could be and what counts as unhealthy.

    `threshold` is that of a rule, or None where no value is a fault and the scale ends at zero; `why` says what the
    number means and why the threshold is where it is.
    """

    label: str
    value: float
    best: float
    threshold: float | None
    why: str
    words: Callable[[float], str] = in_words
    logarithmic: bool = True
    shown: str = ""  # the number as it is told elsewhere, where the value is the sure part of it

    @property
    def place(self) -> float:
        """Where the value stands: 0 at the best or beyond, `LIMIT` at the threshold, 1 at the other end."""
        end, at = (0.0, 1.0) if self.threshold is None else (self.threshold, LIMIT)
        return min(1.0, max(0.0, at * self._way(self.value) / self._way(end)))

    def _way(self, value: float) -> float:
        """How far it is from the best to a value."""
        if not self.logarithmic:
            return value - self.best
        return math.log(value / self.best) if 0 < value < math.inf else math.inf * (1 if value else -1)

    @property
    def is_beyond(self) -> bool:
        """Whether the value is beyond the threshold; how bad that is, findings say."""
        return self.threshold is not None and self.place > LIMIT


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


@dataclass(frozen=True)
class KeyNumber:
    """A number with its name.

    One that is `logarithmic` is compared by its logarithm: factors, not differences. One that is `exact` does not
    depend on how weights are drawn.
    """

    label: str
    value: float
    logarithmic: bool = False
    exact: bool = False


LEVELS = torch.linspace(0, 1, 101, dtype=torch.float64)


@dataclass(frozen=True)
class Curve:
    """Places and heights."""

    x: Tensor
    y: Tensor


@dataclass(frozen=True)
class Overlay:
    """A figure with one bundle of curves a model; `curve` gives that of a reading, or None where it has none."""

    name: str
    title: str
    caption: str
    labels: tuple[str, str]
    curve: Callable[[Any], Curve | None]
    y_log: bool = True


@dataclass(frozen=True)
class Quantity:
    """What is measured, in words, and how: from a finding and the readings that its rule needs."""

    label: str
    measure: Callable[..., float]


@dataclass(frozen=True)
class ReadingView:
    """How a kind of reading is taken, told, drawn, judged and compared: everything that a page asks of it."""

    reading: type[Reading]
    lens: type[Any] | None = None  # None for readings that `inspect` does not take
    section: Callable[[Any], Section] | None = None
    figures: tuple[Draw, ...] = ()
    rules: tuple[Rule, ...] = ()  # judged from it, and from readings that always come
    key_numbers: Callable[[Any], tuple[KeyNumber, ...]] = lambda reading: ()  # what models are compared by
    overlays: tuple[Overlay, ...] = ()
    # By the name of a rule, the number behind its findings, so that it can be taken where the rule is silent too.
    quantities: Mapping[str, Quantity] = field(default_factory=dict)
    scale: Callable[[Any], Scale | None] = lambda reading: None  # its one number, from healthy to unhealthy
