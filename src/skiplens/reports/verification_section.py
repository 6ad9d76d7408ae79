"""A suggested change on trial, told in words."""

import torch

from skiplens.figures import figures_of
from skiplens.readings import VerificationReading
from skiplens.reports.section import Section, number_in_words, provenance_of

TEST = "Wilcoxon signed-rank test of log final losses, paired by seed, two-sided, exact"


def verification_section(reading: VerificationReading) -> Section:
    """Whether the change removes the finding, and whether the network trains better with it."""
    return Section(
        anchor=anchor_of(reading),
        title=f"Proof: {reading.rule.replace('_', ' ')}",
        sentence=verification_sentence(reading),
        facts=_facts(reading),
        notes=_notes(reading),
        figures=figures_of(reading),
        provenance=provenance_of(reading),
    )


def anchor_of(reading: VerificationReading) -> str:
    """Where on the page it stands."""
    return f"{reading.kind}-{reading.rule}"


def verification_sentence(reading: VerificationReading) -> str:
    """Both answers in two sentences."""
    change = f"{number_in_words(reading.before)} → {number_in_words(reading.after)}"
    gone = "the finding is gone" if reading.solved else "the finding is still there"
    return f"With the change, {gone} ({reading.quantity}: {change}). {_race_sentence(reading)}"


def _race_sentence(reading: VerificationReading) -> str:
    if not reading.seeds:
        return reading.reason or "There was no race."
    ends = (
        f"final loss {_median(reading.final_before)} → {_median(reading.final_after)}, lower on {reading.wins} of "
        f"{reading.seeds} seeds, p = {reading.p_value:.2g}"
    )
    words = {
        "helps": "It trains measurably better",
        "hurts": "It trains measurably worse, so the suggestion does not help",
        "no difference": "It does not train measurably better, so the suggestion does not help here",
    }
    return f"{words[reading.outcome]}: {ends}."


def _facts(reading: VerificationReading) -> tuple[tuple[str, str], ...]:
    facts = [
        ("change", reading.remedy.replace("_", " ")),
        (f"{reading.quantity}, before", number_in_words(reading.before)),
        (f"{reading.quantity}, after", number_in_words(reading.after)),
        ("threshold of the finding", number_in_words(reading.threshold)),
        ("the finding", "is gone" if reading.solved else "is still there"),
    ]
    if reading.seeds:
        facts += [
            ("final loss before (median over seeds)", _median(reading.final_before)),
            ("final loss after (median over seeds)", _median(reading.final_after)),
            ("runs that diverged", f"{_diverged(reading.final_before)} before, {_diverged(reading.final_after)} after"),
            ("seeds and steps", f"{reading.seeds} seeds of {reading.losses_before.shape[1]} steps"),
            ("best learning rates", f"{reading.rates[0]:g} before, {reading.rates[1]:g} after"),
            (TEST, f"p = {reading.p_value:.2g}"),
        ]
    return tuple(facts)


def _notes(reading: VerificationReading) -> tuple[str, ...]:
    brought = tuple(f"The change brings another finding: {sentence}" for sentence in reading.brought)
    return (*((reading.reason,) if reading.reason else ()), *brought)


def _median(losses: torch.Tensor) -> str:
    return number_in_words(float(losses.median()))


def _diverged(losses: torch.Tensor) -> int:
    return int(losses.isinf().sum())
