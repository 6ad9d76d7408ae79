"""What stands on top of the page: the verdict, then each finding with its number, its source and its code."""

from collections.abc import Sequence
from dataclasses import dataclass

from skiplens.findings import Finding
from skiplens.findings.finding import ORDER
from skiplens.readings import Reading, VerificationReading
from skiplens.reports.section import number_in_words
from skiplens.reports.verification_section import anchor_of, verification_sentence

_WORDS = {"helps": "helps", "hurts": "does not help", "no difference": "does not help", "not raced": "tried"}
"""What a race says, in a word for a badge."""


@dataclass(frozen=True)
class FindingCard:
    """One finding in words; everything in it is plain text."""

    severity: str
    sentence: str
    change: str
    code: str
    facts: tuple[tuple[str, str], ...]
    proof: "Proof | None" = None
    where: tuple[str, ...] = ()


@dataclass(frozen=True)
class Proof:
    """What came of trying the change, in a word and in a sentence, and where on the page it is told."""

    word: str
    helps: bool
    sentence: str
    anchor: str


@dataclass(frozen=True)
class Opening:
    """The top of the page; `severity`: of the worst finding, '' where nothing is above a note, or 'unknown'."""

    verdict: str
    severity: str
    cards: tuple[FindingCard, ...]


def opening(verdict: str, findings: Sequence[Finding], readings: Sequence[Reading] = ()) -> Opening:
    """The verdict and the findings, most severe first as they come, each with the proof among `readings`."""
    worst = findings[0].severity if findings and findings[0].severity != "note" else ""
    proofs = {reading.rule: _proof(reading) for reading in readings if isinstance(reading, VerificationReading)}
    return Opening(verdict, worst, tuple(_card(finding, proofs.get(finding.rule)) for finding in findings))


def neutral_opening(verdict: str) -> Opening:
    """A verdict that calls nothing good or bad."""
    return Opening(verdict, "unknown", ())


def _proof(reading: VerificationReading) -> Proof:
    helps = reading.outcome == "helps"
    return Proof(_WORDS[reading.outcome], helps, verification_sentence(reading), anchor_of(reading))


def _card(finding: Finding, proof: Proof | None) -> FindingCard:
    facts = [
        ("measured", number_in_words(finding.number)),
        ("threshold", number_in_words(finding.threshold)),
        ("where the threshold comes from", finding.source),
    ]
    if finding.where:
        facts.append(("where", ", ".join(finding.where)))
    words = (finding.severity, finding.sentence, finding.change, finding.code)
    return FindingCard(*words, tuple(facts), proof, finding.where)


def severity_counts(cards: Sequence[FindingCard]) -> list[tuple[str, int]]:
    """How many findings there are of each severity that occurs, the worst first."""
    found = [card.severity for card in cards]
    return [(severity, found.count(severity)) for severity in ORDER if severity in found]
