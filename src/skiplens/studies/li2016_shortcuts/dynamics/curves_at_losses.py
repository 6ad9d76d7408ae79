"""Quantities of all runs at the same losses."""

from collections.abc import Sequence

from skiplens.core.axes import Float, Tensor
from skiplens.readings import Measurement
from skiplens.studies.selection import stacked


def at_losses(
    readings: Sequence[Measurement], family: str, quantity: str, least: float = 0.0
) -> tuple[list[float], Float[Tensor, "replicates losses"]]:
    """The losses from `least` on at which runs of this family were looked at, and the quantity (replicates, losses)."""
    losses = stacked(readings, "loss", "spectra_at_losses", family=family)[0]
    kept = losses >= least
    found = stacked(readings, quantity, "spectra_at_losses", family=family)
    return losses[kept].tolist(), found[:, kept]
