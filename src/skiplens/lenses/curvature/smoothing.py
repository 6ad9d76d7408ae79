"""The grid on which a density is given, and how far each eigenvalue is spread on it."""

from typing import Any

import torch

from skiplens.core.axes import Tensor
from skiplens.linalg.density import SpectralDensity, normal_curves

POINTS = 512
_WIDTHS_IN_SPAN = 100
_MARGIN = 6  # widths beyond the extremes, so that the density integrates to one


def sampled_curve(density: SpectralDensity, smallest: float, largest: float) -> dict[str, Any]:
    """The fields of a reading that hold a sampled density on a grid, with its error."""
    width, grid = _grid(smallest, largest)
    values, errors = density.smoothed(grid, width)
    return {"grid": grid, "density": values, "density_error": errors, "smoothing_width": width}


def exact_curve(eigenvalues: Tensor) -> dict[str, Any]:
    """The same fields for eigenvalues that are all known."""
    width, grid = _grid(eigenvalues[0].item(), eigenvalues[-1].item())
    weights = torch.full_like(eigenvalues, 1 / len(eigenvalues))
    values = normal_curves(eigenvalues[None], weights[None], grid.to(eigenvalues.device), width)[0]
    return {"grid": grid, "density": values, "density_error": torch.zeros_like(grid), "smoothing_width": width}


def _grid(smallest: float, largest: float) -> tuple[float, Tensor]:
    span = largest - smallest
    width = (span if span > 0 else max(abs(largest), 1.0)) / _WIDTHS_IN_SPAN
    return width, torch.linspace(smallest - _MARGIN * width, largest + _MARGIN * width, POINTS, dtype=torch.float64)
