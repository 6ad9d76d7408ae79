"""All eigenvalues of a matrix that fits in memory."""

from typing import Any

import torch

from skiplens.core.axes import Float, Tensor
from skiplens.core.errors import SkiplensError
from skiplens.lenses.curvature.options import SpectrumOptions
from skiplens.lenses.curvature.smoothing import exact_curve
from skiplens.readings.curvature import FLAT, absolute_quantile, condition_of

_ROUNDING = 1e-10  # an eigenvalue is negative beyond rounding if below this times the largest |eigenvalue|


def exact_fields(matrix: Float[Tensor, "params params"], options: SpectrumOptions) -> dict[str, Any]:
    """What a reading says of a matrix: everything about its eigenvalues, in float64."""
    matrix = matrix.double()
    if not bool(torch.isfinite(matrix).all()):
        raise SkiplensError("The matrix has entries that are NaN or infinite; look for a loss that overflows.")
    symmetric = (matrix + matrix.T) / 2
    values, vectors = _decomposed(symmetric, options.vectors)
    size, smallest, largest = len(values), values[0].item(), values[-1].item()
    asymmetry = float((matrix - symmetric).norm())  # what the products' rounding can have moved an eigenvalue by
    error = asymmetry + _solver_error(values)
    ends, top = _ends(size, options.extremes), max(abs(smallest), abs(largest))
    return {
        "method": "exact",
        "parameters": size,
        "eigenvalues": values,
        "nodes": values,
        "weights": torch.full_like(values, 1 / size),
        "largest": largest,
        "smallest": smallest,
        "extremes": values[ends],
        "extreme_residuals": torch.full((len(ends),), error, dtype=torch.float64),
        "vectors": vectors[:, ends] if options.vectors else vectors,
        "trace": symmetric.trace().item(),
        "frobenius_norm": symmetric.norm().item(),
        "condition_interval": _condition_interval(values, top, error),
        "index_interval": (_share(values < -error), _share(values < error)),
        "flat_interval": (_share(values.abs() <= FLAT * top - error), _share(values.abs() <= FLAT * top + error)),
        "rounding": max(_ROUNDING * top, asymmetry),
        "products": size,
        **exact_curve(values),
    }


def _decomposed(symmetric: Tensor, vectors: bool) -> tuple[Tensor, Tensor]:
    if vectors:
        return tuple(torch.linalg.eigh(symmetric))
    return torch.linalg.eigvalsh(symmetric), symmetric.new_zeros(0, 0)


def _ends(size: int, extremes: int) -> list[int]:
    """Ranks of the lowest and highest eigenvalues, each once."""
    return sorted({*range(min(extremes, size)), *range(max(0, size - extremes), size)})


def _condition_interval(values: Tensor, top: float, error: float) -> tuple[float, float]:
    """The condition number if every eigenvalue may be off by `error`; infinite where the quantile may be zero."""
    quantile = absolute_quantile(values, torch.full_like(values, 1 / len(values)))
    return condition_of(top, quantile + error), condition_of(top, max(0.0, quantile - error))


def _share(found: Tensor) -> float:
    return int(found.sum()) / len(found)


def _solver_error(values: Tensor) -> float:
    """A backward-stable solver moves eigenvalues by about the rounding of the size."""
    return float(torch.finfo(values.dtype).eps * len(values) ** 0.5 * values.abs().max())
