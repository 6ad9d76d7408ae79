"""What stands on top of the page: the verdict, then each finding with its number, its source and its code."""

from collections.abc import Sequence
from dataclasses import dataclass

from skiplens.findings import Finding
from skiplens.reports.section import number_in_words


@dataclass(frozen=True)
class FindingCard:
    """One finding in words; everything in it is plain text."""

    severity: str
    sentence: str
    change: str
    code: str
    facts: tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class Opening:
    """The top of the page; `severity` is that of the worst finding, '' where nothing is above a note."""

    verdict: str
    severity: str
    cards: tuple[FindingCard, ...]


def opening(verdict: str, findings: Sequence[Finding]) -> Opening:
    """The verdict and the findings, most severe first as they come."""
    worst = findings[0].severity if findings and findings[0].severity != "note" else ""
    return Opening(verdict, worst, tuple(_card(finding) for finding in findings))


def _card(finding: Finding) -> FindingCard:
    facts = [
        ("measured", number_in_words(finding.number)),
        ("threshold", number_in_words(finding.threshold)),
        ("where the threshold comes from", finding.source),
    ]
    if finding.where:
        facts.append(("where", ", ".join(finding.where)))
    return FindingCard(finding.severity, finding.sentence, finding.change, finding.code, tuple(facts))
