"""Infinitely wide networks: their two kernels, layer by layer, as functions of the correlation of two inputs.

Positive homogeneity makes each kernel (‖x‖‖x′‖/d)·k(ρ); everything here is k. Paper: Littwin & Wolf 2020, Residual
Tangent Kernels, theorems 1 and 2, corrected.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from skiplens.base.axes import Float
from skiplens.kernels.arc_cosine import Correlation, arc_cosine

State = tuple[Correlation, Tensor]  # correlation r and tangent kernel t of a layer, divided by the layer's variance
_LAYERS_WITHOUT_CHECKPOINTS = 256


class LimitKernels(NamedTuple):
    """The two kernels at some correlations, for inputs with ‖x‖‖x′‖ = d, divided by exp(`log_scale`)."""

    nngp: Tensor  # covariance Σ of the outputs
    ntk: Tensor  # tangent kernel K


class Stretch(NamedTuple):
    """How fast the kernels change at the two ends: 1/stretch is the length of their features in the angle."""

    equal: float  # κ at θ = 0, where the inputs are equal
    opposite: float  # μ at θ = π, where they are opposite


@dataclass(frozen=True, eq=False)
class InfiniteNetwork:
    """What a kernel needs to know of an infinitely wide network."""

    depth: int  # L, the residual blocks or layers
    layer: Callable[[State, int], State]  # from a state and a layer's number, counted from 0, to the state after it
    inner_ntk: Tensor  # the tangent kernel at ρ = 1 of all matrices but the first and the last one
    stretch: Stretch  # where the kernels change fast
    outer_layers_trained: bool = False  # whether the first and the last layer are trained too
    # the logarithm of what the kernels of `recursion` have to be multiplied by
    log_scale: Tensor = field(default_factory=lambda: torch.zeros((), dtype=torch.float64))

    def recursion(self, correlation: Correlation) -> LimitKernels:
        """Both kernels layer by layer at each entry of `correlation`."""
        rho = correlation.value
        state = (correlation, rho if self.outer_layers_trained else torch.zeros_like(rho))
        if not torch.is_grad_enabled() or self.depth <= _LAYERS_WITHOUT_CHECKPOINTS:
            state = self._run(state, 0, self.depth)
        else:  # a gradient through many layers keeps only √depth states
            length = max(1, round(self.depth**0.5))
            for start in range(0, self.depth, length):
                stop = min(start + length, self.depth)
                state = checkpoint(self._run, state, start, stop, use_reentrant=False, preserve_rng_state=False)
        nngp, t = state[0].value, state[1]
        return LimitKernels(nngp, t + nngp if self.outer_layers_trained else t)

    def at_equal_inputs(self) -> LimitKernels:
        """Both kernels at ρ = 1 in closed form: 1, and one more for each trained outer layer."""
        ntk = self.inner_ntk + 2.0 if self.outer_layers_trained else self.inner_ntk
        return LimitKernels(torch.ones_like(self.inner_ntk), ntk)

    def _run(self, state: State, start: int, stop: int) -> State:
        for layer in range(start, stop):
            state = self.layer(state, layer)
        return state


def infinite_resnet(
    block_scales: Float[Tensor, "blocks ..."], branch_depth: int, outer_layers_trained: bool = False
) -> InfiniteNetwork:
    """y^l = y^{l−1} + branch(y^{l−1}) with one scale a_l = α_l^m per block; m − 1 ReLUs inside a branch (theorem 1).

    Further axes of the scales belong to the correlations, each of which then has scales of its own.
    """
    shares = block_scales / (1 + block_scales)  # b_l, of the branch in a block's variance
    share_of = shares.unbind()

    def block(state: State, layer: int) -> State:
        """R + b (c(r) − r) and t + b (S − (1 − P) t)."""
        r, t = state
        c, P, S = _branch(r, branch_depth)
        b = share_of[layer]
        return _moved(r, c, b), t + b * (S - (1 - P) * t)

    active = block_scales.detach()[block_scales.detach() > 0]
    first = float(active[0]) if len(active) else 1.0
    # κ = (m − 1) Σ b_l/(3π); the first block smooths the kink at π over a width √(2a)
    kappa = (branch_depth - 1) * float(shares.detach().sum()) / (3 * math.pi)
    stretch = Stretch(kappa, 1 / math.sqrt(2 * max(first, 1e-14)))
    ntk = branch_depth * shares.sum(dim=0)  # each block contributes m b_l
    log_scale = torch.log1p(block_scales).sum(dim=0)  # of ∏(1 + a_l)
    return InfiniteNetwork(len(block_scales), block, ntk, stretch, outer_layers_trained, log_scale)


def infinite_densenet(depth: int, outer_layers_trained: bool = False) -> InfiniteNetwork:
    """Layer l of L = `depth` reads √2·ReLU of all layers before it (theorem 2)."""

    def dense_layer(state: State, layer: int) -> State:
        """The average over the inputs of layer l = `layer` + 1; the first layer replaces what was there."""
        r, T = state
        k1, k0 = arc_cosine(r)
        share = 1 / (layer + 1)
        return _moved(r, k1, share), T + share * (k1.value + k0 * T - T)

    harmonic_number = torch.arange(1, depth + 1, dtype=torch.float64).reciprocal().sum()
    stretch = Stretch(math.log(depth + 1) / (3 * math.pi), 1.0)  # features grow only with log L
    return InfiniteNetwork(depth, dense_layer, harmonic_number, stretch, outer_layers_trained)


def infinite_vanilla(depth: int, outer_layers_trained: bool = False) -> InfiniteNetwork:
    """L = `depth` layers y^l = √2·ReLU(W y^{l−1}/√n); each contributes 1 to the tangent kernel of equal inputs."""

    def vanilla_layer(state: State, layer: int) -> State:
        """κ₁(λ) and (T + λ) κ₀(λ)."""
        r, T = state
        k1, k0 = arc_cosine(r)
        return k1, (T + r.value) * k0

    stretch = Stretch(depth / (3 * math.pi), 1.0)  # angles shrink like θ/(1 + Lθ/(3π))
    ntk = torch.tensor(float(depth), dtype=torch.float64)
    return InfiniteNetwork(depth, vanilla_layer, ntk, stretch, outer_layers_trained)


def _moved(start: Correlation, end: Correlation, share: Tensor | float) -> Correlation:
    """`share` of the way from one correlation to another."""
    return Correlation(*(left + share * (right - left) for left, right in zip(start, end, strict=True)))


def _branch(correlation: Correlation, branch_depth: int) -> tuple[Correlation, Tensor, Tensor]:
    """Correlation c, derivative P = dc/dr and tangent kernel S of a branch whose input has correlation r."""
    c, P, S = correlation, torch.ones_like(correlation.below_one), correlation.value
    for _ in range(branch_depth - 1):
        c, k0 = arc_cosine(c)
        P, S = P * k0, S * k0 + c.value
    return c, P, S
