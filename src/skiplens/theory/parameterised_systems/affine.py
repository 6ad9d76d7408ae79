"""Affine layers P(w) Z + b 1ᵀ and the scale and shift that follow a batch norm."""

import math
from dataclasses import dataclass

import torch

from skiplens.core.axes import Float, Tensor
from skiplens.theory.parameterised_systems.certificate import Certificate, DataBound, product
from skiplens.theory.parameterised_systems.layer import Layer
from skiplens.theory.parameterised_systems.parameterisation import EntryNormalised, Parameterisation


@dataclass(frozen=True)
class Affine(Layer):
    """P(w) Z, plus a bias of one free number for each output (and each position of an image) if asked for.

    The parameters are those of the parameterisation, then the bias.

    Examples:
        >>> from skiplens.theory.parameterised_systems import Free
        >>> Affine(Free(1, 2))(torch.tensor([1.0, 2.0]), torch.tensor([[3.0], [4.0]]))
        tensor([[11.]])
    """

    parameterisation: Parameterisation
    has_bias: bool = False
    name: str = "affine"

    @property
    def inputs(self) -> int:
        """Columns of the matrix."""
        return self.parameterisation.inputs

    @property
    def outputs(self) -> int:
        """Rows of the matrix."""
        return self.parameterisation.outputs

    @property
    def parameters(self) -> int:
        """Parameters of the matrix and of the bias."""
        return self.parameterisation.parameters + self.has_bias * self.outputs

    def __call__(
        self, weights: Float[Tensor, " params"], data: Float[Tensor, "inputs samples"]
    ) -> Float[Tensor, "outputs samples"]:
        """P(w) Z + b 1ᵀ."""
        product = self.parameterisation.apply(self._matrix_weights(weights), data)
        return product + weights[self.parameterisation.parameters :, None] if self.has_bias else product

    def parameter_derivative(
        self, weights: Float[Tensor, " params"], data: Float[Tensor, "inputs samples"]
    ) -> Float[Tensor, "rows params"]:
        """[(I ⊗ Zᵀ) DP(w), I ⊗ 1] (section 2.1 and 2.2 of the paper)."""
        DP = self.parameterisation.derivative(self._matrix_weights(weights))
        entries = DP.reshape(self.outputs, self.inputs, -1)
        linear = torch.einsum("in,oip->onp", data, entries).reshape(-1, DP.shape[1])
        eye = torch.eye(self.outputs, dtype=data.dtype, device=data.device)
        return torch.cat([linear, torch.kron(eye, data.new_ones(data.shape[1], 1))], 1) if self.has_bias else linear

    def input_jacobian(
        self, weights: Float[Tensor, " params"], data: Float[Tensor, "inputs samples"]
    ) -> Float[Tensor, "rows columns"]:
        """P(w) ⊗ I."""
        eye = torch.eye(data.shape[1], dtype=data.dtype, device=data.device)
        return torch.kron(self.parameterisation.matrix(self._matrix_weights(weights)), eye)

    def certificate(self, bound: DataBound) -> Certificate:
        """The first row of the table: products of the suprema of P and of the data."""
        spectral, frobenius = self.parameterisation.spectral(), self.parameterisation.frobenius()
        sizes = [product(spectral.size, bound.frobenius), product(frobenius.size, bound.spectral)]
        if isinstance(
            self.parameterisation, EntryNormalised
        ):  # all entries below the factor: |P x| <= factor √d1 |x|_1
            sizes.append(self.parameterisation.factor * math.sqrt(self.outputs) * bound.column_sums)
        slope = min(product(spectral.slope, bound.frobenius), product(frobenius.slope, bound.spectral))
        curvature = min(product(spectral.curvature, bound.frobenius), product(frobenius.curvature, bound.spectral))
        return Certificate(
            size=math.inf if self.has_bias else min(sizes),
            slope=math.hypot(slope, math.sqrt(bound.samples)) if self.has_bias else slope,
            gain=spectral.size,
            curvature=curvature,
            mixed=spectral.slope,
            bend=0.0,
        )

    def unbounded_because(self, is_first: bool = False) -> str:
        """A matrix that is not normalised has any gain; behind fixed data only its derivative counts."""
        suprema = self.parameterisation.spectral()
        if not math.isfinite(suprema.slope):
            return "its normalisation has epsilon 0, so the derivative is unbounded at zero weights"
        if not is_first and not math.isfinite(suprema.size):
            return "its matrix is not normalised, so the gain of the layer is unbounded"
        return "its bias is not bounded, so the size of its outputs is unbounded" if self.has_bias else ""

    def _matrix_weights(self, weights: Tensor) -> Tensor:
        return weights[: self.parameterisation.parameters]


@dataclass(frozen=True)
class ScaleShift(Layer):
    """A free scale and shift for each channel, as behind a batch norm; `positions` entries share those of a channel."""

    channels: int
    positions: int = 1
    name: str = "scale and shift"

    @property
    def inputs(self) -> int:
        """Entries of one sample."""
        return self.channels * self.positions

    @property
    def outputs(self) -> int:
        """Entries of one sample."""
        return self.inputs

    @property
    def parameters(self) -> int:
        """All scales, then all shifts."""
        return 2 * self.channels

    def __call__(
        self, weights: Float[Tensor, " params"], data: Float[Tensor, "inputs samples"]
    ) -> Float[Tensor, "outputs samples"]:
        """Scale times data plus shift, channel by channel."""
        scale, shift = weights.repeat_interleave(self.positions).reshape(2, -1, 1)
        return scale * data + shift

    def parameter_derivative(
        self, weights: Float[Tensor, " params"], data: Float[Tensor, "inputs samples"]
    ) -> Float[Tensor, "rows params"]:
        """The data and ones, each in the columns of its channel."""
        channel = torch.arange(self.channels, device=data.device).repeat_interleave(self.positions)
        member = torch.nn.functional.one_hot(channel, self.channels).to(data)
        scales = torch.einsum("fc,fn->fnc", member, data).reshape(-1, self.channels)
        return torch.cat([scales, member.repeat_interleave(data.shape[1], 0)], 1)

    def input_jacobian(
        self, weights: Float[Tensor, " params"], data: Float[Tensor, "inputs samples"]
    ) -> Float[Tensor, "rows columns"]:
        """The diagonal matrix of the scales."""
        return torch.diag(weights[: self.channels].repeat_interleave(self.positions * data.shape[1]))

    def certificate(self, bound: DataBound) -> Certificate:
        """Unbounded: scales and shifts are free numbers."""
        slope = math.hypot(bound.frobenius, math.sqrt(self.positions * bound.samples))
        return Certificate(math.inf, slope, math.inf, 0.0, 1.0, 0.0)

    def unbounded_because(self, is_first: bool = False) -> str:
        """Scales are free numbers."""
        return "its scale and shift are not normalised, so the gain of the layer is unbounded"
