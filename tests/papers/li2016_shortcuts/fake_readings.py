"""Readings that no run made, to see what judges say about them."""

from collections.abc import Sequence

import torch

from skiplens.papers.study import Claim, Judgement
from skiplens.readings.reading import Measurement, Provenance


def fake(measure: str, settings: dict, **arrays: object) -> Measurement:
    """A reading of `measure` with these settings and numbers."""
    tensors = {name: torch.as_tensor(value) for name, value in arrays.items()}
    provenance = Provenance.begin(settings, 0).end()
    return Measurement(name=f"package.module:{measure}", arrays=tensors, provenance=provenance)


def judged(claims: Sequence[Claim], name: str, readings: Sequence[Measurement]) -> Judgement:
    """What the judge of the claim called `name` says."""
    (claim,) = [claim for claim in claims if claim.name == name]
    return claim.judge(readings)
