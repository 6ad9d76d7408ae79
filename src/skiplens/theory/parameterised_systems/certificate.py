"""Bounds of a layer over all its parameters, and how they compose: a network's smoothness layer by layer."""

import math
from dataclasses import dataclass

import torch

from skiplens.core.axes import Float, Tensor


@dataclass(frozen=True)
class DataBound:
    """What is known of the data matrix that enters a layer (features × samples).

    Attributes:
        frobenius: Upper bound of |Z|_F.
        spectral: Upper bound of |Z|_2.
        column_sums: Upper bound of the root of Σ_j |z_j|_1² over the samples; infinite where it is not known.
        samples: Number of columns.
    """

    frobenius: float
    spectral: float
    column_sums: float
    samples: int

    @classmethod
    def of_data(cls, data: Float[Tensor, "features samples"]) -> "DataBound":
        """The bounds of a known data matrix, which are equalities."""
        norm = torch.linalg.matrix_norm
        columns = data.abs().sum(0).square().sum().sqrt()
        return cls(float(norm(data)), float(norm(data, 2)), float(columns), data.shape[1])

    @classmethod
    def of_radius(cls, radius: float, samples: int) -> "DataBound":
        """The bounds when only |Z|_F <= radius is known."""
        return cls(radius, radius, math.inf, samples)


@dataclass(frozen=True)
class Certificate:
    """Six suprema of a map h(parameters, data) over all parameters and over all data within a bound.

    Attributes:
        size: R, of |h|_F.
        slope: D, of the derivative in the parameters.
        gain: J, of the derivative in the data.
        curvature: DD, of the second derivative in the parameters.
        mixed: DJ, of the mixed second derivative.
        bend: JJ, of the second derivative in the data.
    """

    size: float
    slope: float
    gain: float
    curvature: float
    mixed: float
    bend: float

    def after(self, inner: "Certificate") -> "Certificate":
        """The certificate of this map after `inner`, whose parameters are others."""
        f, h = self, inner
        return Certificate(
            size=f.size,
            slope=math.hypot(f.slope, product(f.gain, h.slope)),
            gain=product(f.gain, h.gain),
            curvature=_largest_eigenvalue(
                f.curvature,
                product(f.mixed, h.slope),
                product(f.bend, h.slope, h.slope) + product(f.gain, h.curvature),
            ),
            mixed=math.hypot(product(f.mixed, h.gain), product(f.bend, h.slope, h.gain) + product(f.gain, h.mixed)),
            bend=product(f.bend, h.gain, h.gain) + product(f.gain, h.bend),
        )

    @property
    def is_finite(self) -> bool:
        """Whether slope and curvature, which the smoothness of a loss is made of, are finite."""
        return math.isfinite(self.slope) and math.isfinite(self.curvature)


def product(*factors: float) -> float:
    """The product of bounds, where 0 (a map that does not depend on it at all) beats infinity."""
    return 0.0 if 0.0 in factors else math.prod(factors)


def _largest_eigenvalue(a: float, b: float, c: float) -> float:
    """Of [[a, b], [b, c]]."""
    if not math.isfinite(a + b + c):
        return math.inf
    return (a + c) / 2 + math.hypot((a - c) / 2, b)
