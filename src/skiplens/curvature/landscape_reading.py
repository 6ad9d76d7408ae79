"""What the loss looks like around a model: a slice along one or two directions."""

from collections.abc import Mapping
from dataclasses import field, replace
from typing import ClassVar

import torch
from torch import Tensor

from skiplens.base.axes import Float
from skiplens.plots.figure import INK, Contour, Figure, Line, Reference, Surface, Values, numbers
from skiplens.plots.section import ReadingView
from skiplens.readings.reading import Reading


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

    may_lack: ClassVar[Mapping[str, str]] = {
        "losses": "the loss is no number there",
        **dict.fromkeys(("slopes", "curvatures"), "it was not computed along this direction"),
    }

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


def loss_curve(reading: LandscapeReading) -> Figure | None:
    """The loss along one direction, beside the parabola that slope and curvature at the model predict."""
    if reading.dimensions != 1:
        return None
    t = reading.coordinates
    marks = [Line(numbers(t), numbers(reading.losses), "loss")]
    if reading.curvatures.numel() and bool(torch.isfinite(reading.curvatures).all()):
        slope, curvature = float(reading.slopes[0]), float(reading.curvatures[0])
        parabola = reading.loss + slope * t + curvature * t.square() / 2
        marks.append(Line(numbers(t), numbers(parabola), "slope and curvature at the model", True, INK))
    along, model = reading.directions[0], Reference(0.0, "model", axis="x")
    caption = (
        f"The loss over {reading.samples} samples when the weights move along one direction; the model is at 0, with a "
        f"loss of {reading.loss:.4g}.{_about_missing(reading)}"
    )
    words = ("loss_curve", f"Loss along the {along}", caption, f"multiple of the {along}", "loss")
    return Figure(*words, (*marks, model), y_log=_is_logarithmic(reading))


def loss_contours(reading: LandscapeReading) -> Figure | None:
    """The loss over a plane through the model as levels."""
    if reading.dimensions != 2 or reading.missing == reading.losses.numel():
        return None
    x, (first, second) = numbers(reading.coordinates), reading.directions
    caption = (
        f"The loss over {reading.samples} samples on a plane through the model, which is in the middle with a loss of "
        f"{reading.loss:.4g}. Round valleys are easy to descend, long and narrow ones are not.{_about_missing(reading)}"
    )
    words = ("loss_contours", "Loss around the model", caption, f"multiple of the {first}", f"multiple of the {second}")
    return Figure(*words, (Contour(x, x, *_heights(reading)),))


def loss_surface(reading: LandscapeReading) -> Figure | None:
    """The same plane as a surface in space."""
    contours = loss_contours(reading)
    if contours is None:
        return None
    x, (first, second) = numbers(reading.coordinates), reading.directions
    marks = (Surface(x, x, *_heights(reading)),)
    return replace(contours, name="loss_surface", x_label=f"1: {first}", y_label=f"2: {second}", marks=marks)


def _heights(reading: LandscapeReading) -> tuple[tuple[Values, ...], str]:
    """The heights with the first direction along x, and their name."""
    logarithmic = _is_logarithmic(reading)
    heights = reading.losses.log10() if logarithmic else reading.losses
    return tuple(numbers(row) for row in heights.T), "log10 of the loss" if logarithmic else "loss"


def _is_logarithmic(reading: LandscapeReading) -> bool:
    """Whether the losses span so much that they are drawn on a logarithmic scale."""
    finite = reading.losses[torch.isfinite(reading.losses)]
    return reading.lowest > 0 and float(finite.max()) > 100.0 * reading.lowest


def _about_missing(reading: LandscapeReading) -> str:
    total = reading.losses.numel()
    return f" At {reading.missing} of {total} points the loss is not finite: left open." if reading.missing else ""


VIEW = ReadingView(LandscapeReading, figures=(loss_curve, loss_contours, loss_surface))
