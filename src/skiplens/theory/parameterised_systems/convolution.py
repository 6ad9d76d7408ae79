"""Convolution as a parameterisation: the kernel becomes the matrix that multiplies flattened images."""

import math
from dataclasses import dataclass

import torch
from torch.nn import functional as F

from skiplens.core.axes import Float, Tensor
from skiplens.core.errors import InvalidInputError
from skiplens.theory.parameterised_systems.parameterisation import Parameterisation, Suprema

Pair = tuple[int, int]


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
    image: Pair
    window: Pair
    stride: Pair = (1, 1)
    padding: Pair = (0, 0)

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
    def positions(self) -> Pair:
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
    def is_normalised(self) -> bool:
        """Whether the kernel is."""
        return self.kernel.is_normalised

    @property
    def windows_over_a_pixel(self) -> int:
        """The largest number of windows that contain one pixel."""
        return math.prod(math.ceil(size / step) for size, step in zip(self.window, self.stride, strict=True))

    def matrix(self, weights: Float[Tensor, " params"]) -> Float[Tensor, "outputs inputs"]:
        """The Toeplitz matrix: the images of all unit images."""
        return self._convolve(self.kernel.matrix(weights), torch.eye(self.inputs).to(weights))

    def apply(
        self, weights: Float[Tensor, " params"], data: Float[Tensor, "inputs samples"]
    ) -> Float[Tensor, "outputs samples"]:
        """The convolution of each column, a flattened image."""
        return self._convolve(self.kernel.matrix(weights), data)

    def derivative(self, weights: Float[Tensor, " params"]) -> Float[Tensor, "entries params"]:
        """The constant map from kernels to Toeplitz matrices after the kernel's own derivative."""
        return self._spread(weights) @ self.kernel.derivative(weights)

    def second_derivative(self, weights: Float[Tensor, " params"]) -> Float[Tensor, "entries params params"]:
        """The constant map from kernels to Toeplitz matrices after the kernel's own second derivative."""
        return torch.einsum("ek,kpq->epq", self._spread(weights), self.kernel.second_derivative(weights))

    def smallest_derivative(self, weights: Float[Tensor, " params"]) -> float:
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

    def _spread(self, weights: Tensor) -> Tensor:
        """One column for each entry of the kernel: the Toeplitz matrix of that entry alone."""
        units = torch.eye(self.kernel.outputs * self.kernel.inputs).to(weights)
        images = torch.eye(self.inputs).to(weights)
        shape = (self.kernel.outputs, self.kernel.inputs)
        return torch.stack([self._convolve(unit.reshape(shape), images).flatten() for unit in units], dim=1)
