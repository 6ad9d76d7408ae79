"""The number behind each finding as a function of readings, so that it can be taken where the rule is silent too."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from torch import nn

from skiplens.base.errors import SkiplensError
from skiplens.base.progress import Progress
from skiplens.base.randomness import Randomness
from skiplens.graph.batch import Batch
from skiplens.graph.lens import Subject
from skiplens.graph.loss import Loss
from skiplens.readings.finding import Finding, Rule
from skiplens.readings.reading import Reading
from skiplens.report.lenses import LENSES, QUANTITIES, RULES, find


@dataclass(frozen=True)
class Retaken:
    """A number before and after a change, whether the finding is gone, and what the change brought."""

    quantity: str
    before: float
    after: float = math.nan
    solved: bool = False
    brought: tuple[str, ...] = ()
    problem: str = ""


def retake(
    finding: Finding, readings: Sequence[Reading], changed: nn.Module, batch: Batch, loss: Loss, progress: Progress
) -> Retaken:
    """The number behind `finding` in `readings`, and in fresh readings of `changed` with the same random draws."""
    rule, quantity = rule_of(finding), QUANTITIES[finding.rule]
    old = [next(reading for reading in readings if type(reading) is kind) for kind in rule.needs]
    before = quantity.measure(finding, *old)
    subject = Subject(changed, batch, finding.rule, loss=loss)
    try:
        new = [_taken_again(reading, subject, progress) for reading in old]
        after = quantity.measure(finding, *new)
    except SkiplensError as error:
        return Retaken(quantity.label, before, problem=f"The changed network could not be measured: {error}")
    known = {found.rule for found in find(old) if found.severity != "note"}
    brought = tuple(f.sentence for f in find(new) if f.severity != "note" and f.rule not in {*known, finding.rule})
    return Retaken(quantity.label, before, after, not rule(new), brought)


def rule_of(finding: Finding) -> Rule:
    """The rule that found it."""
    return next(rule for rule in RULES if rule.name == finding.rule)


def _taken_again(reading: Reading, subject: Subject, progress: Progress) -> Reading:
    lens = LENSES[reading.kind]()
    return lens(subject, Randomness(reading.provenance.seed or 0).child(lens.name), progress)
