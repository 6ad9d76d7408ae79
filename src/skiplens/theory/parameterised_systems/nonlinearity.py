"""Elementwise nonlinearities with the suprema of their slope and curvature."""

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch.nn import functional as F

from skiplens.core.axes import Tensor

SILU_SLOPE = 1.0998393201289
"""The largest slope of x · sigmoid(x), at x = 2.3994 (rounded up in the last digit)."""


@dataclass(frozen=True)
class Nonlinearity:
    """An elementwise map φ and what the theorems need of it.

    Attributes:
        name: What people call it.
        function: The map of a tensor.
        slope: Supremum of |φ'|.
        curvature: Supremum of the Lipschitz constant of φ'; infinite where φ' jumps.
        bound: Supremum of |φ|.
        at_zero: φ(0).
    """

    name: str
    function: Callable[[Tensor], Tensor]
    slope: float = 1.0
    curvature: float = math.inf
    bound: float = math.inf
    at_zero: float = 0.0

    @property
    def is_smooth(self) -> bool:
        """Whether φ is differentiable and its derivative Lipschitz."""
        return math.isfinite(self.curvature)

    def derivative(self, values: Tensor) -> Tensor:
        """φ' at each entry."""
        return torch.func.grad(lambda x: self.function(x).sum())(values)


def _gelu_slope() -> float:
    """Φ(√2) + √2 φ(√2), the slope of GELU where its curvature changes sign."""
    return 0.5 * (1 + math.erf(1.0)) + math.exp(-1.0) / math.sqrt(math.pi)


NONLINEARITIES = {
    entry.name: entry
    for entry in (
        Nonlinearity("identity", lambda x: x, 1.0, 0.0),
        Nonlinearity("tanh", torch.tanh, 1.0, 4 / (3 * math.sqrt(3)), bound=1.0),
        Nonlinearity("sigmoid", torch.sigmoid, 0.25, 1 / (6 * math.sqrt(3)), bound=1.0, at_zero=0.5),
        Nonlinearity("softplus", F.softplus, 1.0, 0.25, at_zero=math.log(2)),
        Nonlinearity("logsigmoid", F.logsigmoid, 1.0, 0.25, at_zero=-math.log(2)),
        Nonlinearity("sin", torch.sin, 1.0, 1.0, bound=1.0),
        Nonlinearity("softsign", F.softsign, 1.0, 2.0, bound=1.0),
        Nonlinearity("elu", F.elu, 1.0, 1.0),
        Nonlinearity("gelu", F.gelu, _gelu_slope(), math.sqrt(2 / math.pi)),
        Nonlinearity("gelu_tanh", lambda x: F.gelu(x, approximate="tanh"), 1.128994, math.sqrt(2 / math.pi)),
        Nonlinearity("silu", F.silu, SILU_SLOPE, 0.5),
        Nonlinearity("mish", F.mish, 1.088499, 0.644205),
        Nonlinearity("relu", torch.relu),
        Nonlinearity("leaky_relu", F.leaky_relu),
        Nonlinearity("relu6", F.relu6, bound=6.0),
        Nonlinearity("hardtanh", F.hardtanh, bound=1.0),
        Nonlinearity("hardswish", F.hardswish, slope=1.5),
        Nonlinearity("hardsigmoid", F.hardsigmoid, slope=1 / 6, bound=1.0, at_zero=0.5),
        Nonlinearity("selu", F.selu, slope=1.7581),
        Nonlinearity("prelu", lambda x: F.leaky_relu(x, 0.25), slope=math.inf),
    )
}
"""The nonlinearities known by name; those without a finite curvature have a kink."""
