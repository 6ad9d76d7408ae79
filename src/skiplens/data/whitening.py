"""Whitening to the leading principal components, in the convention of 'Demystifying ResNet'."""

from collections.abc import Iterator
from dataclasses import dataclass

import torch

from skiplens.core.axes import Float, Tensor
from skiplens.core.errors import InvalidInputError
from skiplens.data.images import as_floats

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
    _require_variance(eigenvalues, features)
    return Whitening(mean, _with_sign(leading), eigenvalues)


def _with_sign(vectors: Tensor) -> Tensor:
    """The rows, each with its entry of largest magnitude positive."""
    largest = vectors.abs().argmax(1, keepdim=True)
    return vectors * vectors.gather(1, largest).sign()


def _require_variance(eigenvalues: Tensor, features: int) -> None:
    floor = eigenvalues[0] * features * torch.finfo(eigenvalues.dtype).eps
    rank = int((eigenvalues > floor).sum())
    if rank < len(eigenvalues):
        raise InvalidInputError(
            f"Asked for {len(eigenvalues)} whitened components, but the inputs vary in {rank} directions only. "
            "Ask for fewer components or give more samples."
        )


def _in_double(inputs: Tensor) -> Iterator[Tensor]:
    for rows in inputs.flatten(1).split(_ROWS_AT_ONCE):
        yield as_floats(rows, torch.float64) if rows.dtype == torch.uint8 else rows.double()
