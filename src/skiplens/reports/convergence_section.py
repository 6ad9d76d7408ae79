"""The hypotheses of the convergence theorems told in words."""

from collections.abc import Mapping
from typing import Any

from skiplens.readings import HypothesesReading
from skiplens.reports.section import Section, number_in_words, provenance_of

MEANING = (
    "Theorems of MacDonald et al. 2023: S1 to S6 make the loss smooth, R1 to R6 keep its gradient from vanishing, G1 "
    "to G6 let gradient descent use both. Hardly any network in use meets them all; a failing hypothesis is no fault."
)


def convergence_section(reading: HypothesesReading) -> Section:
    """One row a hypothesis, and what follows."""
    return Section(
        anchor=reading.kind,
        title="Convergence",
        sentence=convergence_sentence(reading),
        facts=(
            ("loss", reading.loss),
            ("hypotheses that hold", str(reading.verdicts.count("holds"))),
            ("that fail", ", ".join(reading.failing) or "none"),
            ("that cannot be decided", ", ".join(reading.undecided) or "none"),
        ),
        rows=tuple(
            {
                "hypothesis": row["hypothesis"],
                "verdict": row["verdict"],
                "says": row["statement"],
                "number": _number(row),
                "where": row["where"] if row["verdict"] != "holds" else "",
            }
            for row in reading.rows()
        ),
        notes=(MEANING,),
        provenance=provenance_of(reading),
    )


def _number(row: Mapping[str, Any]) -> str:
    if row["number"] is None and row["sampled"] is None:
        return "–"
    number = "not known" if row["number"] is None else number_in_words(row["number"])
    here = "" if row["sampled"] is None else f" (here {number_in_words(row['sampled'])})"
    return f"{row['meaning']}: {number}{here}"


def convergence_sentence(reading: HypothesesReading) -> str:
    """What is guaranteed."""
    return reading.conclusion if reading.conclusion.endswith(".") else f"{reading.conclusion}."
