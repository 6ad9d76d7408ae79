"""What the loss looks like around a model: a slice along one or two directions."""

from dataclasses import dataclass, field

import torch

from skiplens.core.axes import Float, Tensor
from skiplens.readings.reading import Reading


@dataclass(frozen=True, kw_only=True, eq=False)
class LandscapeReading(Reading, kind="landscape"):
    """The loss at the model's weights plus multiples of one or two directions.

    Attributes:
        coordinates: The multiples, ascending; the same for both directions.
        losses: Entry i (or i, j) is the loss at coordinate i of the first (and j of the second) direction; NaN and
            infinite where the loss is.
        directions: What each direction is, in words.
        loss: The loss of the model itself.
        samples: How many samples the loss is taken over.
        normalised: ``"filter"`` (each filter of a direction as long as the model's own) or ``"none"``.
        norms: The length of each direction.
        slopes: The first derivative of the loss along each direction at the model; NaN where it was not computed.
        curvatures: The second derivative; for eigenvectors of the Hessian these are the eigenvalues.
    """

    coordinates: Float[Tensor, " points"]
    losses: Tensor  # (points,) for a curve, (points, points) for a surface
    directions: tuple[str, ...]
    loss: float
    samples: int
    normalised: str
    norms: Float[Tensor, " directions"]
    slopes: Float[Tensor, " directions"] = field(default_factory=lambda: torch.zeros(0))
    curvatures: Float[Tensor, " directions"] = field(default_factory=lambda: torch.zeros(0))

    @property
    def dimensions(self) -> int:
        """One for a curve, two for a surface."""
        return self.losses.ndim

    @property
    def missing(self) -> int:
        """At how many points the loss is NaN or infinite."""
        return int((~torch.isfinite(self.losses)).sum())

    @property
    def lowest(self) -> float:
        """The smallest finite loss of the slice; NaN where there is none."""
        finite = self.losses[torch.isfinite(self.losses)]
        return float(finite.min()) if len(finite) else float("nan")
