"""What became of a suggested change: the number behind the finding taken again, and a training race."""

import math
from collections.abc import Mapping
from dataclasses import field
from functools import partial
from typing import ClassVar

import torch
from torch import Tensor

from skiplens.base.axes import Float
from skiplens.base.words import in_words
from skiplens.improvement.race import LEVEL, Race, race_figure
from skiplens.plots.figure import Figure, drawn
from skiplens.plots.section import ReadingView, Section, provenance_of
from skiplens.readings.reading import Reading

LAST_SHARE = 0.25  # the share of a run's steps, at its end, over which its final loss is the mean
_none = partial(torch.zeros, 0, 0, dtype=torch.float64)


class VerificationReading(Reading, kind="verification"):
    """A suggested change on trial.

    Both sides of the race see the same batches in the same order, seed by seed, each at the learning rate that suits
    it best.

    Attributes:
        rule: Name of the finding's rule.
        finding: Its sentence.
        remedy: Name of the change.
        quantity: What was measured before and after the change, in words.
        before: Its value for the model as it is.
        after: Its value for the changed copy; NaN where it could not be taken.
        threshold: The number that the finding compared it with.
        solved: Whether the finding is gone.
        brought: Findings above a note that the change brought.
        losses_before: Loss of each step of the model as it is; not finite from where a run diverged.
        losses_after: The same for the changed copy.
        rates: Learning rates of the two sides.
        reason: Why there was no race, or why the number could not be taken again; '' where all went well.
    """

    may_lack: ClassVar[Mapping[str, str]] = {
        "before": "the number could not be taken",
        "after": "the number could not be taken of the changed copy",
        "rates": "there was no race",
        **dict.fromkeys(("losses_before", "losses_after"), "the run has diverged"),
    }

    rule: str
    finding: str
    remedy: str
    quantity: str
    before: float
    after: float
    threshold: float
    solved: bool
    brought: tuple[str, ...] = ()
    losses_before: Float[Tensor, "seeds steps"] = field(default_factory=_none)
    losses_after: Float[Tensor, "seeds steps"] = field(default_factory=_none)
    rates: tuple[float, float] = (math.nan, math.nan)
    reason: str = ""

    @property
    def seeds(self) -> int:
        """How many pairs of runs there are; 0 without a race."""
        return len(self.losses_before)

    @property
    def race(self) -> Race:
        """The race; it has no rows where there was none."""
        return Race(self.losses_before, self.losses_after, self.rates, LAST_SHARE)

    @property
    def final_before(self) -> Float[Tensor, " seeds"]:
        """Mean loss of the last quarter of the steps, seed by seed; infinite where a run diverged."""
        return self.race.ends[0]

    @property
    def final_after(self) -> Float[Tensor, " seeds"]:
        """The same for the changed copy."""
        return self.race.ends[1]

    @property
    def wins(self) -> int:
        """On how many seeds the changed copy ends with the lower loss."""
        return self.race.wins

    @property
    def p_value(self) -> float:
        """Two-sided Wilcoxon signed-rank test, exact, of log final losses paired by seed; NaN without a race."""
        return self.race.rank_p if self.seeds else math.nan

    @property
    def outcome(self) -> str:
        """``helps``, ``hurts`` or ``no difference`` of the race; ``not raced`` without one."""
        if not self.seeds:
            return "not raced"
        if not self.p_value < LEVEL:
            return "no difference"
        return "helps" if 2 * self.wins > self.seeds else "hurts"


def losses_of_race(reading: VerificationReading) -> Figure | None:
    """The loss along training of the model as it is and of the changed copy, over all seeds."""
    name = str(reading.provenance.settings.get("loss", "")).replace("_", " ")
    return race_figure(reading.race, name=f"race_{reading.rule}", loss=name) if reading.seeds else None


FIGURES = (losses_of_race,)
DIVERGED = "diverged"
TEST = "Wilcoxon signed-rank test of log final losses, paired by seed, two-sided, exact"


def verification_section(reading: VerificationReading) -> Section:
    """Whether the change removes the finding, and whether the network trains better with it."""
    told = verification_sentence(reading)
    brought = tuple(f"The change brings another finding: {sentence}" for sentence in reading.brought)
    notes = (*((reading.reason,) if reading.reason and reading.reason not in told else ()), *brought)
    return Section(
        anchor=f"{reading.kind}-{reading.rule}",
        title=f"Proof: {reading.rule.replace('_', ' ')}",
        question="Does it help to change what limits it?",  # where its finding is not told by itself
        sentence=told,
        facts=_facts(reading),
        notes=notes,
        figures=drawn(reading, FIGURES),
        provenance=provenance_of(reading),
    )


def verification_sentence(reading: VerificationReading) -> str:
    """Both answers in two sentences."""
    change = f"{in_words(reading.before)} → {in_words(reading.after)}"
    gone = "the finding is gone" if reading.solved else "the finding is still there"
    return f"With the change, {gone} ({reading.quantity}: {change}). {race_sentence(reading)}"


def race_sentence(reading: VerificationReading) -> str:
    """What the race says, or why there was none."""
    if not reading.seeds:
        return reading.reason or "There was no race."
    before, after = _median(reading.final_before), _median(reading.final_after)
    lower = f"lower on {reading.wins} of {reading.seeds} seeds, p = {in_words(reading.p_value, 2)}"
    ends = "both diverge" if before == after == DIVERGED else f"median final loss {before} → {after}, {lower}"
    words = {
        "helps": "It trains measurably better",
        "hurts": "It trains measurably worse, so the suggestion does not help",
        "no difference": "It does not train measurably better, so the suggestion does not help here",
    }
    return f"{words[reading.outcome]}: {ends}."


def _facts(reading: VerificationReading) -> tuple[tuple[str, str], ...]:
    facts = [
        ("change", reading.remedy.replace("_", " ")),
        (f"{reading.quantity}, before", in_words(reading.before)),
        (f"{reading.quantity}, after", in_words(reading.after)),
        ("threshold of the finding", in_words(reading.threshold)),
    ]
    if reading.seeds:
        diverged = [int(losses.isinf().sum()) for losses in (reading.final_before, reading.final_after)]
        facts += [
            ("runs that diverged", f"{diverged[0]} before, {diverged[1]} after"),
            ("seeds and steps", f"{reading.seeds} seeds of {reading.losses_before.shape[1]} steps"),
            ("best learning rates", f"{reading.rates[0]:g} before, {reading.rates[1]:g} after"),
            (TEST, f"p = {in_words(reading.p_value, 2)}"),
        ]
    return tuple(facts)


def _median(losses: torch.Tensor) -> str:
    middle = float(losses.median())
    return in_words(middle) if math.isfinite(middle) else DIVERGED


VIEW = ReadingView(VerificationReading, section=verification_section, figures=FIGURES)
