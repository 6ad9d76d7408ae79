"""What every architecture's infinite-width limit offers: its two kernels as functions of one angle."""

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from skiplens.theory.infinite_width.arc_cosine import Correlation

State = tuple[Tensor, Tensor, Tensor]
"""1 − r, 1 + r and the tangent kernel t of a layer, divided by the layer's variance."""

Layers = Callable[[State, int], State]


class LimitKernels(NamedTuple):
    """The two kernels at some correlations, for inputs with ‖x‖‖x′‖ = d, divided by exp(`Limit.log_scale`).

    Attributes:
        nngp: Covariance Σ of the outputs.
        ntk: Tangent kernel K.
    """

    nngp: Tensor
    ntk: Tensor


class Stretch(NamedTuple):
    """How fast the kernels change at the two ends: 1/stretch is the length of their features in the angle.

    Attributes:
        equal: κ at θ = 0, where the inputs are equal.
        opposite: μ at θ = π, where they are opposite.
    """

    equal: float
    opposite: float


class Limit(ABC):
    """An infinitely wide network. Positive homogeneity makes each kernel (‖x‖‖x′‖/d)·k(ρ); this is k.

    Attributes:
        depth: L, the residual blocks or layers.
        outer_layers_trained: Whether the first and the last layer are trained too.
    """

    depth: int
    outer_layers_trained: bool

    def recursion(self, correlation: Correlation) -> LimitKernels:
        """Both kernels layer by layer at each entry of `correlation`."""
        rho = correlation.value
        t = rho if self.outer_layers_trained else torch.zeros_like(rho)
        below_one, above_minus_one, t = _iterate(self.layers(), (*correlation, t), self.depth)
        nngp = Correlation(below_one, above_minus_one).value
        return LimitKernels(nngp, t + nngp if self.outer_layers_trained else t)

    def at_equal_inputs(self) -> LimitKernels:
        """Both kernels at ρ = 1 in closed form: 1, and one more for each trained outer layer."""
        inner = self.inner_ntk_at_equal_inputs()
        return LimitKernels(torch.ones_like(inner), inner + 2.0 if self.outer_layers_trained else inner)

    @abstractmethod
    def layers(self) -> Layers:
        """The map from a state and the number of a layer, counted from 0, to the state after it."""

    @abstractmethod
    def log_scale(self) -> Tensor:
        """The logarithm of what the kernels of `recursion` have to be multiplied by."""

    @abstractmethod
    def inner_ntk_at_equal_inputs(self) -> Tensor:
        """The tangent kernel at ρ = 1 of all matrices but the first and the last one."""

    @abstractmethod
    def stretch(self) -> Stretch:
        """Where the kernels change fast."""


def _iterate(step: Layers, state: State, depth: int) -> State:
    """`step` applied for the layers 0 … depth − 1; a gradient through many layers keeps only √depth states."""
    if not torch.is_grad_enabled() or depth <= _LAYERS_WITHOUT_CHECKPOINTS:
        return _run(step, state, 0, depth)
    length = max(1, round(depth**0.5))
    for start in range(0, depth, length):
        stop = min(start + length, depth)
        state = checkpoint(_run, step, state, start, stop, use_reentrant=False, preserve_rng_state=False)
    return state


_LAYERS_WITHOUT_CHECKPOINTS = 256


def _run(step: Layers, state: State, start: int, stop: int) -> State:
    for layer in range(start, stop):
        state = step(state, layer)
    return state
