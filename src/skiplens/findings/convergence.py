"""Hypotheses of the global-convergence theorems that fail, by name."""

from collections.abc import Iterator

from skiplens.findings.finding import Finding
from skiplens.findings.rule import Rule
from skiplens.readings import HypothesesReading

DERIVED = ("S5", "S6", "G1", "G4")
"""Hypotheses that fail only because another one does."""


def judge_hypotheses(reading: HypothesesReading) -> Iterator[Finding]:
    """One note with all that fail, and the smallest change for each."""
    failing = [row for row in reading.rows() if row["verdict"] == "fails"]
    causes = [row for row in failing if row["hypothesis"] not in DERIVED] or failing
    if not failing:
        return
    named = ", ".join(row["hypothesis"] for row in causes)
    yield Finding(
        rule="convergence_hypotheses",
        severity="note",
        sentence=f"Convergence to the optimum is not guaranteed: {len(failing)} of {len(reading.labels)} hypotheses "
        f"fail, above all {named}.",
        number=float(len(failing)),
        threshold=0.0,
        source="'On skip connections and normalisation layers in deep optimisation', theorems 4.5 (S), 4.7 (R) and 5.1 "
        "(G, in its corrected form)",
        change=" ".join(f"{row['hypothesis']} ({row['statement']}): {row['change']}" for row in causes),
        where=tuple(row["hypothesis"] for row in failing),
    )


RULES = (Rule("convergence_hypotheses", (HypothesesReading,), judge_hypotheses),)
