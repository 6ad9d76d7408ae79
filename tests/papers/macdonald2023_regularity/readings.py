"""Readings made by hand, to see how claims are judged."""

from collections.abc import Mapping, Sequence
from types import ModuleType

from torch import Tensor

from skiplens.papers.study import Judgement
from skiplens.readings.reading import Measurement, Provenance


def made(measure: str, arrays: Mapping[str, Tensor], **settings: object) -> Measurement:
    """What a run of `measure` with these settings would have left."""
    return Measurement(name=f"somewhere:{measure}", arrays=arrays, provenance=Provenance(settings=settings))


def judged(item: ModuleType, claim: str, readings: Sequence[Measurement]) -> Judgement:
    """What the judge of the claim called `claim`, one of an item's module, says."""
    return {each.name: each.judge for each in item.CLAIMS}[claim](readings)
