"""What can be asked of a slice of the loss landscape."""

import math
from dataclasses import dataclass
from typing import Literal

from skiplens.core.errors import InvalidInputError
from skiplens.core.settings import Settings, option

Normalisation = Literal["auto", "filter", "none"]


@dataclass(frozen=True)
class LandscapeOptions(Settings):
    """Options of `loss_landscape`."""

    dimensions: int = option(2, "1 for a curve, 2 for a surface; given directions count themselves")
    points: int = option(25, "points along each direction; an odd number has the model itself in the middle")
    radius: float = option(1.0, "largest multiple of a direction")
    normalise: Normalisation = option(
        "auto", "filter: each filter of a direction as long as the model's own; auto: filter for random directions only"
    )
    tolerance: float = option(1e-3, "residual at which an eigenvector is good enough, relative to the eigenvalue")
    max_products: int = option(300, "Hessian products spent on eigenvectors at most")
    workers: int = option(0, "points looked at at once on a CPU, one thread each; 0: as many as torch has threads")
    journal: str | None = option(None, "folder to keep finished rows in; a killed run goes on from it")
    seed: int = option(0, "names the random directions and the start of the search for eigenvectors")
    memory: int | None = option(None, "bytes that may be used; half of what is free if not given")

    def __post_init__(self) -> None:
        """Refuse slices that cannot be drawn."""
        super().__post_init__()
        if self.dimensions not in (1, 2):
            raise InvalidInputError(f"dimensions={self.dimensions}; a slice has 1 or 2 dimensions.")
        if self.points < 2:
            raise InvalidInputError(f"points={self.points}; a slice needs at least 2 points along each direction.")
        if not (math.isfinite(self.radius) and self.radius > 0):
            raise InvalidInputError(f"radius={self.radius}; give a positive number, e.g. 1.0.")
        if self.workers < 0:
            raise InvalidInputError(f"workers={self.workers}; give 1 or more, or 0 to choose automatically.")
