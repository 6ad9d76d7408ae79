"""Readings made by hand, to see how claims are judged."""

from collections.abc import Mapping

from torch import Tensor

from skiplens.readings.reading import Measurement, Provenance


def made(measure: str, arrays: Mapping[str, Tensor], **settings: object) -> Measurement:
    """What a run of `measure` with these settings would have left."""
    return Measurement(name=f"somewhere:{measure}", arrays=arrays, provenance=Provenance(settings=settings))
