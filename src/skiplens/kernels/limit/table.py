"""Networks of matrices and ReLUs without biases: a kernel that is τ·k(angle), tabulated once for any depth.

Whether a module is one is not read from its operations but tried: the kernel of multiplied inputs must be the
multiplied kernel, and that of any two inputs the one of two inputs in the plane at their angle.
"""

import math
from collections.abc import Callable

import torch
from torch import Tensor

from skiplens.base.errors import DidNotConverge
from skiplens.kernels.angular import AngularKernel, DiagonalValue, tabulated
from skiplens.kernels.arc_cosine import Correlation
from skiplens.kernels.infinite_network import Stretch
from skiplens.kernels.limit.signals import Data
from skiplens.kernels.tables import Table, quick_table, tabulate

# From known values to the covariance and the tangent kernel of the output
Kernels = Callable[[Data], tuple[Tensor, Tensor]]
_SAME = 1e-9  # kernels that agree so far are taken for equal
_ACCURACY = 1e-7  # of the table: an angle that comes from a rounded cosine is good to 1e-8


def angular_kernels_of(kernels: Kernels, steps: int) -> tuple[tuple[AngularKernel, Table], ...] | None:
    """Both kernels as functions of the angle, with their tables for float32; None if they are no such functions."""
    if not _is_angular(kernels):
        return None

    def evaluate(correlation: Correlation) -> Tensor:
        """Both kernels, (kernels, pieces, places)."""
        c, s = correlation.value.flatten(), (correlation.below_one * correlation.above_minus_one).sqrt().flatten()
        found = kernels(_plane(torch.stack([c, s], dim=1)))
        return torch.stack([part.view(correlation.below_one.shape) for part in found])

    try:
        tables = tabulate(evaluate, Stretch(max(1.0, steps / (3 * math.pi)), 1.0), _ACCURACY)
    except DidNotConverge:
        return None
    unit = math.sqrt(2) * torch.tensor([[1.0, 0.0]], dtype=torch.float64)
    zero, found = torch.zeros((), dtype=torch.float64), []
    for table, part in zip(tables, kernels(Data(unit, unit, True)), strict=True):
        found.append((tabulated(table, DiagonalValue(part[0, 0], zero)), quick_table(table, torch.float32)))
    return tuple(found)


def _plane(others: Tensor) -> Data:
    """(1, 0) and unit vectors of the plane, of mean square 1."""
    first = torch.tensor([[1.0, 0.0]], dtype=torch.float64)
    return Data(math.sqrt(2) * first, math.sqrt(2) * others.double(), False)


def _is_angular(kernels: Kernels) -> bool:
    generator = torch.Generator().manual_seed(0)
    x, y = torch.randn(2, 1, 5, generator=generator, dtype=torch.float64) + 0.3
    x, y = (math.sqrt(5) * part / torch.linalg.vector_norm(part) for part in (x, y))
    c = float(x @ y.T) / 5
    plain = kernels(Data(x, y, False))
    larger = kernels(Data(2 * x, 3 * y, False))
    plane = kernels(_plane(torch.tensor([[c, math.sqrt(1 - c * c)]], dtype=torch.float64)))
    pairs = [pair for a, b, d in zip(plain, larger, plane, strict=True) for pair in ((6 * a, b), (a, d))]
    return all(bool((one - other).abs().max() <= _SAME * (one.abs().max() + 1e-300)) for one, other in pairs)
