"""Norms without parameters: of channels over a batch, which couples its samples, and of features within a sample.

Variances are biased, and ε is inside of the root.
"""

import math
from dataclasses import dataclass

from torch import Tensor

from skiplens.base.errors import InvalidInputError
from skiplens.jacobians.systems.layer import Certificate, DataBound, Inputs, Layer, Outputs, Weights
from skiplens.jacobians.systems.parameterisation import CURVATURE, unit_rows


@dataclass(frozen=True)
class BatchNorm(Layer):
    """bn = v ∘ m: each channel centred, then divided by its deviation, over all samples (and positions of an image).

    A channel is a row y of n = samples · positions numbers; v(y) = √n y/sqrt(n ε + |y|²) is the normalised row of
    weight normalisation, with n ε in place of ε.
    """

    channels: int
    epsilon: float = 1e-5
    positions: int = 1
    name: str = "batch norm"
    couples_samples = True  # mean and deviation are those of the batch

    def __post_init__(self) -> None:
        """Refuse what is no batch norm."""
        if self.channels < 1 or self.positions < 1 or self.epsilon < 0:
            raise InvalidInputError(
                f"A batch norm of {self.channels} channels, {self.positions} positions and epsilon {self.epsilon} was "
                "asked for; it needs at least one channel and position, and epsilon >= 0."
            )

    @property
    def inputs(self) -> int:
        """Entries of one sample."""
        return self.channels * self.positions

    def __call__(self, weights: Weights, data: Inputs) -> Outputs:
        """The normalised data matrix."""
        return normalised(data.reshape(self.channels, -1), self.epsilon).reshape(data.shape)

    def certificate(self, bound: DataBound) -> Certificate:
        """Bounded output, slope ε^(−1/2), curvature K2/(√n ε), whatever comes in."""
        n = bound.samples * self.positions
        return norm_certificate(self.channels * n, n, self.epsilon)

    def unbounded_because(self, is_first: bool = False) -> str:
        """Only without ε."""
        return "" if self.epsilon > 0 else "its epsilon is 0, so the derivative is unbounded at constant channels"


def normalised(rows: Tensor, epsilon: float, is_centred: bool = True) -> Tensor:
    """Each row less its mean and divided by its deviation, √n y/sqrt(n ε + |y|²)."""
    n = rows.shape[1]
    rows = rows - rows.mean(1, keepdim=True) if is_centred else rows
    return math.sqrt(n) * unit_rows(rows, n * epsilon)


def norm_certificate(entries: int, row: int, epsilon: float) -> Certificate:
    """The bounds of any norm of so many entries, of which each `row` shares a mean and a deviation."""
    size = math.sqrt(entries)
    if epsilon == 0:
        return Certificate(size, 0.0, math.inf, 0.0, 0.0, math.inf)
    return Certificate(size, 0.0, epsilon**-0.5, 0.0, 0.0, CURVATURE / (math.sqrt(row) * epsilon))


@dataclass(frozen=True)
class SampleNorm(Layer):
    """Each group of neighbouring features of a sample, centred and divided by its deviation; samples stay apart.

    Attributes:
        features: Numbers of one sample.
        groups: How many groups they fall into: 1 for layer norm over whole samples.
        epsilon: Inside of the root.
        is_centred: False for RMS norm.
        name: Of the layer.
    """

    features: int
    groups: int = 1
    epsilon: float = 1e-5
    is_centred: bool = True
    name: str = "layer norm"

    def __post_init__(self) -> None:
        """Refuse groups that do not fill a sample."""
        if self.groups < 1 or self.features < self.groups or self.features % self.groups or self.epsilon < 0:
            raise InvalidInputError(
                f"A norm of {self.groups} groups of {self.features} features with epsilon {self.epsilon} was asked "
                "for; it needs groups of equal size with at least one feature each, and epsilon >= 0."
            )

    @property
    def inputs(self) -> int:
        """Entries of one sample."""
        return self.features

    def __call__(self, weights: Weights, data: Inputs) -> Outputs:
        """The normalised data matrix."""
        rows = data.T.reshape(-1, self.features // self.groups)
        return normalised(rows, self.epsilon, self.is_centred).reshape(data.T.shape).T

    def certificate(self, bound: DataBound) -> Certificate:
        """Bounded output, slope ε^(−1/2), curvature K2/(√n ε), whatever comes in: those of batch norm."""
        return norm_certificate(self.features * bound.samples, self.features // self.groups, self.epsilon)

    def unbounded_because(self, is_first: bool = False) -> str:
        """Only without ε."""
        return "" if self.epsilon > 0 else "its epsilon is 0, so the derivative is unbounded at constant groups"
