"""What the checker of the convergence theorems found: one verdict for each hypothesis."""

import textwrap
from collections.abc import Mapping, Sequence
from typing import Any

from skiplens.base import in_words, require_known
from skiplens.plots.figure import Bars, Figure, numbers
from skiplens.plots.section import KeyNumber, Scale, Section
from skiplens.readings.reading import Reading

WIDTH = 100
THEOREMS = {"S": "the loss is smooth", "R": "gradients do not vanish", "G": "descent uses both"}


class HypothesesReading(Reading, kind="hypotheses"):
    """The hypotheses of theorems 4.5 (S), 4.7 (R) and 5.1 (G) of MacDonald et al. 2023 for one model.

    Entry i of each tuple speaks of the hypothesis `labels[i]`. `str()` gives a table.

    Attributes:
        model: Name of the model.
        loss: Name of the loss.
        layers: The network as it was read: a line for each layer.
        labels: Short names, S1 to G6.
        statements: What each hypothesis says.
        verdicts: ``holds``, ``fails`` or ``cannot be decided``.
        numbers: The number behind each verdict, None where there is none.
        meanings: What the numbers are.
        where: The layers that each verdict comes from, joined by commas.
        reasons: Why.
        changes: The smallest change that would make it hold, '' where it holds.
        codes: The change as code to paste, '' where there is none.
        conclusion: What follows for gradient descent.
        sampled: The numbers at the present weights and data, where `numbers` bounds them for all; None elsewhere.
        notes: What was done differently from the plain case.
    """

    model: str
    loss: str
    layers: tuple[str, ...]
    labels: tuple[str, ...]
    statements: tuple[str, ...]
    verdicts: tuple[str, ...]
    numbers: tuple[float | None, ...]
    meanings: tuple[str, ...]
    where: tuple[str, ...]
    reasons: tuple[str, ...]
    changes: tuple[str, ...]
    codes: tuple[str, ...]
    conclusion: str
    sampled: tuple[float | None, ...] = ()
    notes: tuple[str, ...] = ()

    def rows(self) -> tuple[Mapping[str, Any], ...]:
        """One row a hypothesis."""
        names = ("statements", "verdicts", "numbers", "meanings", "where", "reasons", "changes", "codes")
        columns = ("statement", "verdict", "number", "meaning", "where", "reason", "change", "code")
        sampled = self.sampled or (None,) * len(self.labels)
        values = zip(self.labels, *(getattr(self, name) for name in names), sampled, strict=True)
        return tuple(dict(zip(("hypothesis", *columns, "sampled"), row, strict=True)) for row in values)

    def __getitem__(self, label: str) -> Mapping[str, Any]:
        """The row of one hypothesis, such as ``reading["S1"]``."""
        require_known(label, self.labels, f"There is no hypothesis {label!r}.")
        return self.rows()[self.labels.index(label)]

    @property
    def failing(self) -> tuple[str, ...]:
        """Labels of the hypotheses that fail."""
        return self._labels_with("fails")

    @property
    def undecided(self) -> tuple[str, ...]:
        """Labels of the hypotheses that cannot be decided."""
        return self._labels_with("cannot be decided")

    def _labels_with(self, verdict: str) -> tuple[str, ...]:
        return tuple(label for label, one in zip(self.labels, self.verdicts, strict=True) if one == verdict)

    def __str__(self) -> str:
        """The verdicts as a table, then what follows."""
        lines = [f"{self.model} with {self.loss}", ""]
        for row in self.rows():
            number = "" if row["number"] is None else in_words(row["number"], 6)
            if row["sampled"] is not None:
                number = f"{number or 'not known'}, here {in_words(row['sampled'], 6)}"
            number = f" [{row['meaning']}: {number}]" if number else ""
            lines.append(f"{row['verdict']:<17}  {_named(row)}{number}")
            if row["verdict"] != "holds":
                for text in (f"at {row['where']}: {row['reason']}", f"-> {row['change']}"):
                    lines += textwrap.wrap(text, WIDTH, initial_indent="      ", subsequent_indent="         ")
                lines += [f"        {line}" for line in row["code"].splitlines()]
        return "\n".join([*lines, "", *textwrap.wrap(self.conclusion, WIDTH)])


MEANING = (
    "Theorems of MacDonald et al. 2023: the first six hypotheses (S) make the loss smooth, six more (R) keep its "
    "gradient from vanishing, and with the last six (G) gradient descent uses both. Hardly any network in use meets "
    "them all; a failing hypothesis is no fault."
)
TOLD = 2  # hypotheses that fail, in the sentence; the table has all


def convergence_section(reading: HypothesesReading) -> Section:
    """One row a hypothesis, and what follows."""
    facts = (
        ("loss", reading.loss),
        ("hypotheses that hold", str(reading.verdicts.count("holds"))),
        ("that fail", str(len(reading.failing))),
        ("that cannot be decided", str(len(reading.undecided))),
    )
    rows = tuple(
        {
            "hypothesis": _named(row),
            "verdict": row["verdict"],
            "number": _number(row),
            "where": row["where"] if row["verdict"] != "holds" else "",
        }
        for row in reading.rows()
    )
    failing = (f"“{row['statement']}” fails. {row['change']}" for row in reading.rows() if row["verdict"] == "fails")
    told: dict[str, Any] = {"facts": facts, "rows": rows, "notes": (MEANING, *reading.notes, *failing)}
    return Section.of(reading, "Convergence", convergence_sentence(reading), FIGURES, **told)


def convergence_sentence(reading: HypothesesReading) -> str:
    """What follows; where hypotheses fail, the first of them in words."""
    missing = [row for row in reading.rows() if row["verdict"] == "fails"]
    if not missing:
        return reading.conclusion if reading.conclusion.endswith(".") else f"{reading.conclusion}."
    named = "; ".join(f"“{row['statement']}” ({row['reason']})" for row in missing[:TOLD])
    more = f"; and {len(missing) - TOLD} more" if len(missing) > TOLD else ""
    return (
        f"No theorem promises that gradient descent arrives here, as for nearly all networks in use: {len(missing)} of "
        f"{len(reading.labels)} hypotheses fail, above all {named}{more}."
    )


def _named(row: Mapping[str, Any]) -> str:
    """What the hypothesis says, and in brackets the short name under which the theory note has it."""
    return f"{row['statement']} ({row['hypothesis']})"


def _number(row: Mapping[str, Any]) -> str:
    if row["number"] is None and row["sampled"] is None:
        return "–"
    number = "not known" if row["number"] is None else in_words(row["number"])
    here = "" if row["sampled"] is None else f" (here {in_words(row['sampled'])})"
    return f"{row['meaning']}: {number}{here}"


def hypotheses_by_theorem(reading: HypothesesReading) -> Figure:
    """How many hypotheses of each theorem hold, fail or cannot be decided."""
    caption = "How many hypotheses of each theorem hold, fail, or cannot be decided from what was measured."
    words = ("hypotheses", "Hypotheses of each theorem", caption, "", "hypotheses")
    return Figure(*words, verdict_bars(reading.labels, reading.verdicts))


def verdict_bars(labels: Sequence[str], verdicts: Sequence[str]) -> tuple[Bars, ...]:
    """The verdicts that there are, counted for each theorem; the same bars wherever hypotheses are shown."""
    found = list(zip((label[0] for label in labels), verdicts, strict=True))
    return tuple(
        Bars(tuple(THEOREMS.values()), numbers([found.count((one, word)) for one in THEOREMS]), word)
        for word in ("holds", "cannot be decided", "fails")
        if word in verdicts
    )


def hypotheses_scale(reading: HypothesesReading) -> Scale:
    """How many hypotheses hold, of all; no number of them is a fault."""
    count = len(reading.labels)
    return Scale(
        f"of {count} hypotheses hold", float(reading.verdicts.count("holds")), float(count), None, "", logarithmic=False
    )


FIGURES = (hypotheses_by_theorem,)


def hypotheses_numbers(reading: HypothesesReading) -> tuple[KeyNumber, ...]:
    """What models are compared by."""
    return (
        KeyNumber("hypotheses that hold", float(reading.verdicts.count("holds"))),
        KeyNumber("hypotheses that fail", float(len(reading.failing))),
    )
