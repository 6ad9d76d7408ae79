"""Standardised channels, and whitened principal components as 'Demystifying ResNet' takes them."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from skiplens.base import Float, InvalidInputError
from skiplens.data.images import as_floats


@dataclass(frozen=True)
class Standardisation:
    """Mean and standard deviation of each channel, of pixels in [0, 1]."""

    mean: tuple[float, ...]
    std: tuple[float, ...]

    def __call__(self, images: Tensor, dtype: torch.dtype | None = None) -> Tensor:
        """The standardised images (samples, channels, height, width); bytes count as pixels, 255 being 1."""
        if images.ndim < 3 or images.shape[-3] != len(self.mean):
            raise InvalidInputError(
                f"These statistics are for {len(self.mean)} channels (…, channels, height, width); got images of shape "
                f"{tuple(images.shape)}."
            )
        pixels = as_floats(images, dtype) if images.dtype == torch.uint8 else images
        mean, std = (pixels.new_tensor(values)[:, None, None] for values in (self.mean, self.std))
        return (pixels - mean) / std


def measure_channels(stacks: Iterable[Tensor]) -> Standardisation:
    """The statistics of all pixels in `stacks` of uint8 images (samples, channels, height, width), exact to rounding.

    Bytes are counted, not added: the sums are of integers. The standard deviation has the factor 1/count. A constant
    channel gets the standard deviation 1, so it becomes 0 and not a division by zero.
    """
    counts = None
    for stack in stacks:
        counted = torch.stack([torch.bincount(channel.flatten(), minlength=256) for channel in stack.unbind(1)])
        counts = counted if counts is None else counts + counted
    if counts is None or not counts.any():
        raise InvalidInputError("There are no images to measure channels of; give at least one.")
    values = torch.arange(256, dtype=torch.float64) / 255
    weights = counts.double() / counts.sum(1, keepdim=True)
    mean = weights @ values
    deviation = (weights * (values - mean[:, None]) ** 2).sum(1).sqrt()
    return Standardisation(tuple(mean.tolist()), tuple(torch.where(deviation > 0, deviation, 1.0).tolist()))


_ROWS_AT_ONCE = 4096


@dataclass(frozen=True, eq=False)
class Whitening:
    """The map x ↦ diag(eigenvalues)^(-1/2) components (x − mean); its outputs have mean 0 and covariance I."""

    mean: Float[Tensor, " features"]
    components: Float[Tensor, "rank features"]
    eigenvalues: Float[Tensor, " rank"]

    def __call__(self, inputs: Tensor) -> Float[Tensor, "samples rank"]:
        """The whitened coordinates of the samples; images are flattened, and bytes count as pixels, 255 being 1."""
        features = inputs.flatten(1).shape[1]
        if features != self.mean.numel():
            raise InvalidInputError(f"This whitening is for {self.mean.numel()} features; got {features}.")
        scaled = (self.components / self.eigenvalues.sqrt()[:, None]).T
        white = torch.cat([(rows - self.mean) @ scaled for rows in _in_double(inputs)])
        return white.to(inputs.dtype) if inputs.is_floating_point() else white


def fit_whitening(inputs: Tensor, components: int) -> Whitening:
    """The whitening of `inputs` (samples, …) to its `components` directions of largest variance, in float64.

    The mean is subtracted, the covariance has the factor 1/samples, the eigenvalues descend, and each eigenvector has
    the sign that makes its entry of largest magnitude positive. Bytes are pixels (255 is 1); images are flattened. The
    inputs are read in chunks, so beside them only a matrix (features, features) is in memory.
    """
    samples, features = inputs.flatten(1).shape
    if not 1 <= components <= features:
        raise InvalidInputError(f"Asked for {components} components of {features} features; ask for 1 to {features}.")
    mean = torch.stack([rows.sum(0) for rows in _in_double(inputs)]).sum(0) / samples
    covariance = sum((rows - mean).T @ (rows - mean) for rows in _in_double(inputs)) / samples
    eigenvalues, vectors = torch.linalg.eigh(covariance)
    eigenvalues, leading = eigenvalues.flip(0)[:components], vectors.flip(1)[:, :components].T
    floor = eigenvalues[0] * features * torch.finfo(eigenvalues.dtype).eps
    rank = int((eigenvalues > floor).sum())
    if rank < components:
        raise InvalidInputError(
            f"Asked for {components} whitened components, but the inputs vary in {rank} directions only. "
            "Ask for fewer components or give more samples."
        )
    signs = leading.gather(1, leading.abs().argmax(1, keepdim=True)).sign()
    return Whitening(mean, leading * signs, eigenvalues)


def _in_double(inputs: Tensor) -> Iterator[Tensor]:
    for rows in inputs.flatten(1).split(_ROWS_AT_ONCE):
        yield as_floats(rows, torch.float64) if rows.dtype == torch.uint8 else rows.double()
