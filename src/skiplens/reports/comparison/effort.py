"""How much of each model is looked at, so that a comparison ends in minutes."""

from collections.abc import Sequence
from dataclasses import dataclass

from skiplens.core.errors import InvalidInputError
from skiplens.lenses.catalogue import LENSES, choose

LARGE = 1_000_000
"""Parameters from which on a model counts as large."""

COSTLY = ("curvature", "tangent")
"""Lenses whose cost grows with parameters times samples; large models are compared without them unless asked."""

FEWEST_DRAWS = 2


@dataclass(frozen=True)
class Effort:
    """Draws of each model, samples, lenses, and what a person should know about them."""

    draws: int
    samples: int
    lenses: tuple[str, ...]
    notes: tuple[str, ...]


def effort(parameters: int, lenses: Sequence[str], draws: int | None) -> Effort:
    """The effort for models of which the largest has so many parameters.

    Args:
        parameters: Of the largest model.
        lenses: Those that were asked for; none: chosen here.
        draws: Draws that were asked for; None: chosen here.
    """
    choose(tuple(lenses))  # a wrong name is told before any work is done
    if draws is not None and draws < 1:
        raise InvalidInputError(f"A comparison of {draws} draws was asked for; wanted at least 1.")
    large = parameters > LARGE
    chosen = tuple(lenses) or tuple(name for name in LENSES if not (large and name in COSTLY))
    count, samples = draws or (3 if large else 5), 8 if large else 16
    told = [f"Each model was drawn up to {count} times and looked at with {samples} samples."]
    left_out = [name for name in COSTLY if name not in chosen]
    if left_out and not lenses:
        told.append(
            f"Left out, since a model has {parameters:,} parameters: {' and '.join(left_out)}. Ask for them by name."
        )
    return Effort(count, samples, chosen, tuple(told))
