"""A finding: one sentence for a person, the number behind it, and the change that helps."""

import json
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, Literal, Self

from skiplens.readings.reading import Reading

Severity = Literal["critical", "warning", "note"]
"""How much a finding matters.

* ``critical``: the network cannot train as it stands, or no measurement of it can be trusted.
* ``warning``: it will train badly, or a part of it is lost.
* ``note``: worth knowing; healthy networks have some.
"""

ORDER: tuple[Severity, ...] = ("critical", "warning", "note")


def rule_words(module: str) -> dict[str, dict[str, Any]]:
    """The fields `source` and `change` of each rule's findings, from the file `words.json` beside a module."""
    found = json.loads(Path(module).with_name("words.json").read_text("utf-8"))
    return {rule: dict(zip(("source", "change"), words, strict=True)) for rule, words in found.items()}


@dataclass(frozen=True)
class Remedy:
    """A change of a model as data: the name of a function from a model to a new one, and its parameters.

    In `skiplens.edits.remedies`, `apply_remedy` carries it out on a copy and `code_of` writes it as code to paste.
    """

    name: str
    parameters: Mapping[str, Any] = field(default_factory=dict)

    def with_seed(self, seed: int) -> Self:
        """The same; what draws weights draws those of `seed`, so that a race does not hang on one draw."""
        return replace(self, parameters={**self.parameters, "seed": seed}) if "seed" in self.parameters else self


@dataclass(frozen=True)
class Finding:
    """What a rule found in the readings of a model.

    Attributes:
        rule: Name of the rule.
        severity: How much it matters.
        sentence: What is so, for a person in a hurry.
        number: The measured number.
        threshold: The number that it was compared with.
        source: Where the threshold comes from: theorem, equation or statistic.
        change: What helps, in words.
        code: The change as code to paste; '' where there is none.
        where: Names of the blocks, modules or parameters it speaks of.
        remedy: The change as data; None where no function can make it.
    """

    rule: str
    severity: Severity
    sentence: str
    number: float
    threshold: float
    source: str
    change: str
    code: str = ""
    where: tuple[str, ...] = ()
    remedy: Remedy | None = None

    def to_json(self) -> dict[str, Any]:
        """The finding in words that JSON has; numbers that it lacks (inf, nan) become words."""
        values = asdict(self)
        values["where"] = list(self.where)
        try:
            json.dumps(values["remedy"], allow_nan=False)
        except ValueError:  # by an infinite factor: no change that anybody could make
            values["remedy"] = None
        for name in ("number", "threshold"):
            values[name] = values[name] if math.isfinite(values[name]) else str(values[name])
        return values

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> Self:
        """The finding that `to_json` wrote."""
        numbers = {name: float(values[name]) for name in ("number", "threshold")}
        remedy = None if values["remedy"] is None else Remedy(**values["remedy"])
        return cls(**{**values, **numbers, "where": tuple(values["where"]), "remedy": remedy})


def finding_with(
    words: Mapping[str, Any], rule: str, severity: Severity, sentence: str, numbers: tuple[float, float], **more: Any
) -> Finding:
    """What a rule found: a number and its threshold; what `more` does not say is in the `words` of the rule."""
    return Finding(rule, severity, sentence, *numbers, **(words[rule] | more))


def by_severity(findings: list[Finding]) -> tuple[Finding, ...]:
    """The findings, most severe first; those of one severity stay in order."""
    return tuple(sorted(findings, key=lambda finding: ORDER.index(finding.severity)))


def verdict(findings: tuple[Finding, ...]) -> str:
    """One line: that the network is healthy, or its most severe finding."""
    serious = [finding for finding in findings if finding.severity != "note"]
    if not serious:
        notes = len(findings)
        return "Healthy." if not notes else f"Healthy, with {notes} note{'s' * (notes > 1)}."
    more = len(serious) - 1
    behind = f" And {more} more finding{'s' * (more > 1)}." if more else ""
    return f"{serious[0].severity.capitalize()}: {serious[0].sentence}{behind}"


def listed(names: tuple[str, ...], most: int = 4) -> str:
    """The first names, and how many more there are."""
    shown = ", ".join(names[:most])
    return shown if len(names) <= most else f"{shown} and {len(names) - most} more"


@dataclass(frozen=True)
class Rule:
    """Judges one thing from readings of the kinds that it `needs`; it is silent where one of them was not taken."""

    name: str
    needs: tuple[type[Reading], ...]
    judge: Callable[..., Iterable[Finding]]  # called with these readings, in order

    def __call__(self, readings: Sequence[Reading]) -> list[Finding]:
        """The findings of this rule."""
        found = [next((reading for reading in readings if type(reading) is kind), None) for kind in self.needs]
        return [] if any(reading is None for reading in found) else list(self.judge(*found))
