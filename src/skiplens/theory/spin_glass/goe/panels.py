"""Gauss–Legendre quadrature on panels, and the sign kernel on it."""

import functools
import math

import numpy as np
import torch
from torch import Tensor

from skiplens.core.axes import Float


def panel_nodes(
    breaks: Float[Tensor, " breaks"], order: int
) -> tuple[Float[Tensor, " nodes"], Float[Tensor, " nodes"]]:
    """Nodes and weights of the `order`-point rule on each interval between neighbouring breaks."""
    x, w = _legendre(order)
    half = breaks.diff()[:, None] / 2
    middle = (breaks[1:] + breaks[:-1])[:, None] / 2
    return (middle + half * x).flatten(), (half * w).flatten()


def growing_breaks(start: float, end: float, first: float, largest: float) -> Float[Tensor, " breaks"]:
    """Breaks from `start` to `end` whose distances grow by half from `first` up to `largest`."""
    breaks, width = [start], first
    while breaks[-1] + width < end:
        breaks.append(breaks[-1] + width)
        width = min(1.5 * width, largest)
    return torch.tensor([*breaks, end], dtype=torch.float64)


@functools.lru_cache(maxsize=32)
def unit_panels(panels: int, order: int) -> tuple[Tensor, Tensor, Tensor]:
    """Nodes, weights and sign kernel of equal panels on [0, 1]; K f (y) = ∫ sgn(y − x) f(x) dx at the nodes y."""
    nodes, weights = panel_nodes(torch.linspace(0, 1, panels + 1, dtype=torch.float64), order)
    same_panel = torch.block_diag(*[_running_integral(order) / (2 * panels)] * panels)
    panel = torch.arange(panels * order) // order
    up_to = torch.where(panel[:, None] > panel, weights, same_panel)
    return nodes, weights, 2 * up_to - weights


@functools.lru_cache(maxsize=32)
def _legendre(order: int) -> tuple[Tensor, Tensor]:
    x, w = np.polynomial.legendre.leggauss(order)
    return torch.from_numpy(x), torch.from_numpy(w)


def _running_integral(order: int) -> Tensor:
    """The matrix that takes values at the nodes of [−1, 1] to ∫_{−1}^{x_i}, exact for polynomials of that degree."""
    x, w = np.polynomial.legendre.leggauss(order)
    P = np.polynomial.legendre.legvander(x, order)
    degree = np.arange(order)
    to_series = (degree[:, None] + 0.5) * (P[:, :order] * w[:, None]).T
    integrals = np.empty((order, order))
    integrals[:, 0] = x + 1
    integrals[:, 1:] = (P[:, 2:] - P[:, : order - 1]) / (2 * degree[1:] + 1)
    return torch.from_numpy(integrals @ to_series)


def spectrum_edge(size: int) -> float:
    """The distance from 0 beyond which an eigenvalue has a probability of less than one rounding."""
    return 2 * math.sqrt(size) + 9
