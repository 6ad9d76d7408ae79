"""What every architecture's infinite-width limit offers: its two kernels as functions of one angle."""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from skiplens.base.axes import Float
from skiplens.kernels.arc_cosine import Correlation, arc_cosine

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


class InfiniteNetwork(ABC):
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


@dataclass(frozen=True, eq=False)
class InfiniteResNet(InfiniteNetwork):
    """y^l = y^{l−1} + branch(y^{l−1}) with one scale a_l = α_l^m per block; m − 1 ReLUs inside a branch.

    Attributes:
        block_scales: a_l = α_l^m for each of the L blocks, float64; further axes belong to the correlations, each of
            which then has scales of its own.
        branch_depth: m, the matrices of a branch.
        outer_layers_trained: Whether the first and the last layer are trained too.
    """

    block_scales: Float[Tensor, "blocks ..."]
    branch_depth: int
    outer_layers_trained: bool = False

    def _shares(self) -> Float[Tensor, "blocks ..."]:
        """b_l = a_l/(1 + a_l): the share of the branch in a block's variance."""
        return self.block_scales / (1 + self.block_scales)

    @property
    def depth(self) -> int:  # type: ignore[override]
        """L, the residual blocks."""
        return len(self.block_scales)

    def layers(self) -> Layers:
        """The block: r + b (c(r) − r) and t + b (S − (1 − P) t)."""
        share_of = self._shares().unbind()

        def block(state: State, layer: int) -> State:
            below_one, above_minus_one, t = state
            c, P, S = _branch(Correlation(below_one, above_minus_one), self.branch_depth)
            b = share_of[layer]
            return (
                below_one + b * (c.below_one - below_one),
                above_minus_one + b * (c.above_minus_one - above_minus_one),
                t + b * (S - (1 - P) * t),
            )

        return block

    def log_scale(self) -> Tensor:
        """The logarithm of ∏(1 + a_l)."""
        return torch.log1p(self.block_scales).sum(dim=0)

    def inner_ntk_at_equal_inputs(self) -> Tensor:
        """Each block contributes m b_l."""
        return self.branch_depth * self._shares().sum(dim=0)

    def stretch(self) -> Stretch:
        """κ = (m − 1) Σ b_l/(3π); the first block smooths the kink at π over a width √(2a)."""
        kappa = (self.branch_depth - 1) * float(self._shares().detach().sum()) / (3 * math.pi)
        scales = self.block_scales.detach()
        active = scales[scales > 0]
        first = float(active[0]) if len(active) else 1.0
        return Stretch(kappa, 1 / math.sqrt(2 * max(first, 1e-14)))


def _branch(correlation: Correlation, branch_depth: int) -> tuple[Correlation, Tensor, Tensor]:
    """Correlation c, derivative P = dc/dr and tangent kernel S of a branch whose input has correlation r."""
    c, P, S = correlation, torch.ones_like(correlation.below_one), correlation.value
    for _ in range(branch_depth - 1):
        c, k0 = arc_cosine(c)
        P, S = P * k0, S * k0 + c.value
    return c, P, S


@dataclass(frozen=True)
class InfiniteDenseNet(InfiniteNetwork):
    """Layer l reads √2·ReLU of all layers before it.

    Attributes:
        depth: L, the dense layers.
        outer_layers_trained: Whether the first and the last layer are trained too.
    """

    depth: int
    outer_layers_trained: bool = False

    def layers(self) -> Layers:
        """An average over all layers before."""
        return _dense_layer

    def log_scale(self) -> Tensor:
        """0: a DenseNet keeps the variance."""
        return torch.zeros((), dtype=torch.float64)

    def inner_ntk_at_equal_inputs(self) -> Tensor:
        """The harmonic number H_L."""
        return torch.arange(1, self.depth + 1, dtype=torch.float64).reciprocal().sum()

    def stretch(self) -> Stretch:
        """Features grow only with log L."""
        return Stretch(math.log(self.depth + 1) / (3 * math.pi), 1.0)


def _dense_layer(state: State, layer: int) -> State:
    """The average over the inputs of layer l = `layer` + 1; the first layer replaces what was there."""
    below_one, above_minus_one, T = state
    k1, k0 = arc_cosine(Correlation(below_one, above_minus_one))
    share = 1 / (layer + 1)
    return (
        below_one + share * (k1.below_one - below_one),
        above_minus_one + share * (k1.above_minus_one - above_minus_one),
        T + share * (k1.value + k0 * T - T),
    )


@dataclass(frozen=True)
class InfiniteVanilla(InfiniteNetwork):
    """L layers y^l = √2·ReLU(W y^{l−1}/√n).

    Attributes:
        depth: L, the layers with a ReLU.
        outer_layers_trained: Whether the first and the last layer are trained too.
    """

    depth: int
    outer_layers_trained: bool = False

    def layers(self) -> Layers:
        """κ₁(λ) and (T + λ) κ₀(λ)."""
        return _vanilla_layer

    def log_scale(self) -> Tensor:
        """0: √2·ReLU keeps the variance."""
        return torch.zeros((), dtype=torch.float64)

    def inner_ntk_at_equal_inputs(self) -> Tensor:
        """L: each layer contributes 1."""
        return torch.tensor(float(self.depth), dtype=torch.float64)

    def stretch(self) -> Stretch:
        """Angles shrink like θ/(1 + Lθ/(3π))."""
        return Stretch(self.depth / (3 * math.pi), 1.0)


def _vanilla_layer(state: State, layer: int) -> State:
    """κ₁(λ) and (T + λ) κ₀(λ)."""
    below_one, above_minus_one, T = state
    correlation = Correlation(below_one, above_minus_one)
    k1, k0 = arc_cosine(correlation)
    return (*k1, (T + correlation.value) * k0)
