"""Singular values of A and of I + A, A a layer at PyTorch's default initialisation."""

from dataclasses import dataclass

import torch

from skiplens.core.axes import Tensor
from skiplens.core.settings import option
from skiplens.studies.replicates import ReplicateSettings


@dataclass(frozen=True)
class LinearLayer(ReplicateSettings):
    """A random matrix whose entries are uniform between ±1/√width."""

    width: int = option(500, "rows and columns")


def skip_spectra(settings: LinearLayer) -> dict[str, Tensor]:
    """Singular values, descending: of A (`chain`) and of I + A (`skip`)."""
    n = settings.width
    A = (2 * torch.rand(n, n, dtype=torch.float64, generator=settings.stream()) - 1) / n**0.5
    I_plus_A = torch.eye(n, dtype=torch.float64) + A
    return {"chain": torch.linalg.svdvals(A), "skip": torch.linalg.svdvals(I_plus_A)}
