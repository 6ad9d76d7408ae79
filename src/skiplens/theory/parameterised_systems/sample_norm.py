"""Norms within a sample (layer, group, instance and RMS norm): batch norm's formula along the other axis."""

import math
from dataclasses import dataclass

import torch

from skiplens.core.axes import Float, Tensor
from skiplens.core.errors import InvalidInputError
from skiplens.theory.parameterised_systems.batch_norm import norm_certificate
from skiplens.theory.parameterised_systems.certificate import Certificate, DataBound
from skiplens.theory.parameterised_systems.layer import Layer
from skiplens.theory.parameterised_systems.unit_rows import centring, unit_rows, unit_rows_derivative


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

    @property
    def outputs(self) -> int:
        """Entries of one sample."""
        return self.features

    def __call__(
        self, weights: Float[Tensor, " params"], data: Float[Tensor, "inputs samples"]
    ) -> Float[Tensor, "outputs samples"]:
        """The normalised data matrix."""
        rows, n = self._rows(data)
        return (math.sqrt(n) * unit_rows(rows, n * self.epsilon)).reshape(data.T.shape).T

    def parameter_derivative(
        self, weights: Float[Tensor, " params"], data: Float[Tensor, "inputs samples"]
    ) -> Float[Tensor, "rows params"]:
        """No columns."""
        return self.no_parameters(data)

    def input_jacobian(
        self, weights: Float[Tensor, " params"], data: Float[Tensor, "inputs samples"]
    ) -> Float[Tensor, "rows columns"]:
        """Block diagonal in groups and samples: for each of them √n times equation 27, after the centring."""
        rows, n = self._rows(data)
        samples = data.shape[1]
        blocks = math.sqrt(n) * unit_rows_derivative(rows, n * self.epsilon)
        blocks = (blocks @ centring(rows) if self.is_centred else blocks).reshape(samples, self.groups, n, n)
        one_group, one_sample = (
            torch.eye(size, dtype=data.dtype, device=data.device) for size in (self.groups, samples)
        )
        return torch.einsum("sgij,gh,st->gishjt", blocks, one_group, one_sample).reshape(data.numel(), -1)

    def certificate(self, bound: DataBound) -> Certificate:
        """Bounded output, slope ε^(−1/2), curvature K2/(√n ε), whatever comes in: those of batch norm."""
        return norm_certificate(self.features * bound.samples, self.features // self.groups, self.epsilon)

    def unbounded_because(self, is_first: bool = False) -> str:
        """Only without ε."""
        return "" if self.epsilon > 0 else "its epsilon is 0, so the derivative is unbounded at constant groups"

    def _rows(self, data: Tensor) -> tuple[Tensor, int]:
        n = self.features // self.groups
        rows = data.T.reshape(-1, n)
        return rows - rows.mean(1, keepdim=True) if self.is_centred else rows, n
