"""Affine layers P(w) Z + b 1ᵀ, convolutions among them, and the scale and shift that follow a batch norm."""

import math
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F

from skiplens.base import Float, InvalidInputError
from skiplens.jacobians.systems.layer import Certificate, DataBound, Inputs, Layer, Outputs, Weights, product
from skiplens.jacobians.systems.parameterisation import EntryNormalised, Parameterisation, Suprema


@dataclass(frozen=True)
class Affine(Layer):
    """P(w) Z, plus a bias of one free number for each output (and each position of an image) if asked for.

    The parameters are those of the parameterisation, then the bias.

    Examples:
        >>> from skiplens.jacobians.systems import Free
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

    def __call__(self, weights: Weights, data: Inputs) -> Outputs:
        """P(w) Z + b 1ᵀ."""
        matrix, bias = weights.tensor_split([self.parameterisation.parameters])
        linear = self.parameterisation.apply(matrix, data)
        return linear + bias[:, None] if self.has_bias else linear

    def certificate(self, bound: DataBound) -> Certificate:
        """The first row of the table: products of the suprema of P and of the data."""
        spectral, frobenius = self.parameterisation.spectral(), self.parameterisation.frobenius()
        sizes = [product(spectral.size, bound.frobenius), product(frobenius.size, bound.spectral)]
        if isinstance(self.parameterisation, EntryNormalised):
            # all entries below the factor: |P x| <= factor √d1 |x|_1
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
    def parameters(self) -> int:
        """All scales, then all shifts."""
        return 2 * self.channels

    def __call__(self, weights: Weights, data: Inputs) -> Outputs:
        """Scale times data plus shift, channel by channel."""
        scale, shift = weights.repeat_interleave(self.positions).reshape(2, -1, 1)
        return scale * data + shift

    def certificate(self, bound: DataBound) -> Certificate:
        """Unbounded: scales and shifts are free numbers."""
        slope = math.hypot(bound.frobenius, math.sqrt(self.positions * bound.samples))
        return Certificate(math.inf, slope, math.inf, 0.0, 1.0, 0.0)

    def unbounded_because(self, is_first: bool = False) -> str:
        """Scales are free numbers."""
        return "its scale and shift are not normalised, so the gain of the layer is unbounded"


@dataclass(frozen=True)
class Convolution(Parameterisation):
    """The Toeplitz matrix of a two-dimensional convolution.

    Attributes:
        kernel: Parameterisation of the kernel as a matrix of output channels × (input channels · window).
        channels: Input channels.
        image: Height and width of the images that enter.
        window: Height and width of the kernel.
        stride: Steps between windows.
        padding: Zeros around the image.
    """

    kernel: Parameterisation
    channels: int
    image: tuple[int, int]
    window: tuple[int, int]
    stride: tuple[int, int] = (1, 1)
    padding: tuple[int, int] = (0, 0)

    def __post_init__(self) -> None:
        """Refuse a kernel of another shape and windows that do not fit."""
        if self.kernel.inputs != self.channels * math.prod(self.window):
            raise InvalidInputError(
                f"The kernel has rows of {self.kernel.inputs} numbers; {self.channels} channels and windows of "
                f"{self.window[0]} × {self.window[1]} need {self.channels * math.prod(self.window)}."
            )
        if min(self.positions) < 1:
            raise InvalidInputError(
                f"Windows of {self.window[0]} × {self.window[1]} do not fit into images of {self.image[0]} × "
                f"{self.image[1]} with padding {self.padding}: the layer would have no outputs. Use a smaller window."
            )

    @property
    def positions(self) -> tuple[int, int]:
        """Height and width of the images that leave."""
        sizes = zip(self.image, self.window, self.stride, self.padding, strict=True)
        height, width = ((size + 2 * pad - window) // stride + 1 for size, window, stride, pad in sizes)
        return height, width

    @property
    def outputs(self) -> int:  # type: ignore[override]  # declared as a field above: read-only here
        """Entries of one image that leaves."""
        return self.kernel.outputs * math.prod(self.positions)

    @property
    def inputs(self) -> int:  # type: ignore[override]  # declared as a field above: read-only here
        """Entries of one image that enters."""
        return self.channels * math.prod(self.image)

    @property
    def parameters(self) -> int:
        """Entries of the kernel."""
        return self.kernel.parameters

    @property
    def windows_over_a_pixel(self) -> int:
        """The largest number of windows that contain one pixel."""
        return math.prod(math.ceil(size / step) for size, step in zip(self.window, self.stride, strict=True))

    def matrix(self, weights: Weights) -> Float[Tensor, "outputs inputs"]:
        """The Toeplitz matrix: the images of all unit images."""
        return self._convolve(self.kernel.matrix(weights), torch.eye(self.inputs).to(weights))

    def apply(self, weights: Weights, data: Inputs) -> Outputs:
        """The convolution of each column, a flattened image."""
        return self._convolve(self.kernel.matrix(weights), data)

    def derivative(self, weights: Weights) -> Float[Tensor, "entries params"]:
        """The constant map from kernels to Toeplitz matrices after the kernel's own derivative."""
        units = torch.eye(self.kernel.outputs * self.kernel.inputs).to(weights)
        images = torch.eye(self.inputs).to(weights)
        # a column for each entry of the kernel: the Toeplitz matrix of that entry alone
        spread = torch.stack([self._convolve(unit, images).flatten() for unit in units], dim=1)
        return spread @ self.kernel.derivative(weights)

    def smallest_derivative(self, weights: Weights) -> float:
        """0, unless there is one window that covers the whole image: a kernel cannot make every matrix."""
        covers = self.positions == (1, 1) and self.window == self.image and self.padding == (0, 0)
        return self.kernel.smallest_derivative(weights) if covers else 0.0

    def spectral(self) -> Suprema:
        """The bounds of the kernel as a matrix times the root of the number of windows over a pixel."""
        return self.kernel.spectral().times(math.sqrt(self.windows_over_a_pixel))

    def frobenius(self) -> Suprema:
        """Each entry of the kernel occurs at most once for each output position."""
        return self.kernel.frobenius().times(math.sqrt(math.prod(self.positions)))

    def _convolve(self, kernel: Tensor, data: Tensor) -> Tensor:
        images = data.T.reshape(-1, self.channels, *self.image)
        filters = kernel.reshape(-1, self.channels, *self.window)
        return F.conv2d(images, filters, stride=self.stride, padding=self.padding).flatten(1).T.contiguous()
