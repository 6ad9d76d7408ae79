"""A verdict: an entry of verdicts.json, and whether it is worse than the recorded one."""

import dataclasses
import math
from dataclasses import dataclass
from typing import Any

from skiplens.studies.claim import Claim, Judgement, Word

_ALARMS = ("differs", "not attempted")


@dataclass(frozen=True)
class Verdict:
    """What the paper says, what we found, and the word for it."""

    study: str
    item: str
    claim: str
    statement: str
    printed_at: str
    paper: str
    ours: float | None
    uncertainty: float | None
    tolerance: float | None
    verdict: Word
    deviations: tuple[str, ...]
    explanation: str = ""
    recorded: str | None = None

    @property
    def name(self) -> str:
        """`study/item/claim`."""
        return f"{self.study}/{self.item}/{self.claim}"

    @property
    def is_worse(self) -> bool:
        """Whether the claim was recorded with another word, and the present one is no success."""
        return self.recorded is not None and self.verdict != self.recorded and self.verdict in _ALARMS

    def to_json(self) -> dict[str, Any]:
        """The entry; numbers that JSON lacks become null."""
        values = dataclasses.asdict(self)
        return {name: None if _is_no_number(value) else value for name, value in values.items()}


def verdict_of(place: tuple[str, str], claim: Claim, judgement: Judgement, deviations: tuple[str, ...]) -> Verdict:
    """The verdict on a claim of (study, item)."""
    return Verdict(
        *place,
        claim.name,
        claim.statement,
        claim.printed_at,
        claim.paper,
        judgement.ours,
        judgement.uncertainty,
        judgement.tolerance,
        judgement.verdict,
        deviations,
        judgement.explanation,
    )


def _is_no_number(value: Any) -> bool:
    return isinstance(value, float) and not math.isfinite(value)
