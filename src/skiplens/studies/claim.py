"""A claim of a paper, and what our numbers say about it."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

Word = Literal["reproduced", "differs", "corrected", "not attempted"]
"""`corrected`: the printed statement does not hold, and the right one, shown beside it, does."""


@dataclass(frozen=True)
class Judgement:
    """What the readings say.

    Attributes:
        verdict: The word.
        ours: Our number; where a claim is about many, the one farthest from it.
        uncertainty: Half the width of its confidence interval.
        tolerance: How far from the paper's number (or beyond its bound) still counts as the same.
        explanation: What was compared, in a sentence, with the corrected statement where there is one.
    """

    verdict: Word
    ours: float | None = None
    uncertainty: float | None = None
    tolerance: float | None = None
    explanation: str = ""


@dataclass(frozen=True)
class Claim:
    """One statement of a paper that numbers can decide.

    Attributes:
        name: Within its item, in snake_case.
        statement: As the paper means it, in a sentence.
        printed_at: Figure, theorem or equation.
        paper: The paper's number or relation.
        judge: Decides from the readings of the item's runs, in their order.
    """

    name: str
    statement: str
    printed_at: str
    paper: str
    judge: Callable[[Sequence[Any]], Judgement]
