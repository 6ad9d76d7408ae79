"""How deep a signal goes: where variance and correlation end if one step of a network is repeated, and how soon.

A step is a nonlinearity f and the matrix behind it: q ↦ σ_w² E f(√q z)² + σ_b². At its fixed point q* the correlation
of two inputs goes to c*, and its distance from there shrinks by χ = σ_w² E f′f′ at each step: like exp(−l/ξ) with
ξ = −1/ln χ (Schoenholz et al. 2017, Deep information propagation, equations 3 to 9).
"""

import math
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from skiplens.kernels.limit.signals import Moments, Unit

_STEPS, _CONVERGED = 100, 1e-10
_GRID = 4001  # correlations at which the map is compared with the identity
_ENDLESS = 1e12  # a variance above, or below its inverse, does not settle
HEAD = ("nonlinearity", "matrix", "slope χ₁", "variance q*", "correlation c*", "depth scale ξ")


@dataclass(frozen=True)
class DepthScale:
    """Where one step of a network leads if it is repeated."""

    nonlinearity: str
    matrix: str
    slope: float  # χ₁ = σ_w² E f′² at the variance that the network has here: above 1 nearly equal inputs part
    variance: float  # q*, 0 or infinite where it does not settle
    correlation: float  # c*, NaN where the variance does not settle
    scale: float  # ξ, in steps; infinite at the edge of chaos

    def row(self) -> tuple[str, ...]:
        """As a row of a table."""
        numbers = self.slope, self.variance, self.correlation, self.scale
        return self.nonlinearity, self.matrix, *(f"{number:.4g}" for number in numbers)


def depth_scale(names: tuple[str, str], unit: Unit, gain: float, offset: float) -> DepthScale:
    """Of the step from the latent variable of `unit`, through its function and a matrix with σ_w² and σ_b²."""
    here = float(unit.latent.variances[0].mean())
    slope, q = gain * float(_expected(unit, here, torch.ones(1, 1))[1]), _fixed_variance(unit, here, gain, offset)
    if not 0 < q < math.inf:
        return DepthScale(*names, slope, q, math.nan, math.nan)
    chi = gain * float(_expected(unit, q, torch.ones(1, 1))[1])
    if chi <= 1 + _CONVERGED:  # equal inputs are where it ends: the map is convex and nowhere else crosses the identity
        return DepthScale(*names, slope, q, 1.0, _steps_of(chi))
    c = torch.linspace(0, 1, _GRID, dtype=torch.float64)[None]
    for _ in range(3):  # the first place where the map crosses the identity, on finer and finer grids
        values = (gain * _expected(unit, q, c)[0] + offset) / q
        below = (values <= c + _CONVERGED).squeeze(0).nonzero()
        last = int(below[0]) if len(below) else c.shape[1] - 1
        c = torch.linspace(float(c[0, max(0, last - 1)]), float(c[0, last]), _GRID, dtype=torch.float64)[None]
    correlation = float(c[0, -1])
    chi = gain * float(_expected(unit, q, torch.full((1, 1), correlation, dtype=torch.float64))[1])
    return DepthScale(*names, slope, q, correlation, _steps_of(chi))


def _steps_of(chi: float) -> float:
    """ξ = −1/ln χ."""
    return math.inf if abs(chi - 1) < 1e-9 else 0.0 if chi <= 0 else abs(1 / math.log(chi))


def _fixed_variance(unit: Unit, start: float, gain: float, offset: float) -> float:
    """Where q ↦ σ_w² E f(√q z)² + σ_b² ends."""

    def step(q: float) -> float:
        return gain * float(_expected(unit, q, torch.ones(1, 1))[0]) + offset

    if unit.function is None:  # linear on both sides of 0, so that the map is a line
        growth = step(1.0) - offset
        if abs(growth - 1) <= _CONVERGED:
            return start if not offset else math.inf
        return offset / (1 - growth) if growth < 1 else math.inf
    q = start
    for _ in range(_STEPS):  # Steffensen's method: two steps, and where they would lead
        one = step(q)
        two = step(one) if 1 / _ENDLESS < one < _ENDLESS else one
        if not two < _ENDLESS or two < 1 / _ENDLESS:
            return 0.0 if two < 1 else math.inf
        if abs(two - one) <= _CONVERGED * one:
            return two
        bend = two - 2 * one + q
        ahead = q - (one - q) ** 2 / bend if bend else two
        q = ahead if 0 < ahead < _ENDLESS and (two - one) * (ahead - two) > 0 else two  # only further the same way
    return q


def _expected(unit: Unit, variance: float, rho: Tensor) -> tuple[Tensor, Tensor]:
    """E f(u) f(v) and E f′(u) f′(v) for this variance of both and these correlations, (1, correlations)."""
    rho = rho.double()
    own = torch.full((1, 1), variance, dtype=torch.float64)
    equal = rho.numel() == 1 and bool(rho == 1)
    latent = Moments((rho * variance, own, own.expand(rho.shape)), torch.ones_like(rho), frozenset(), same=equal)
    moments = replace(unit, latent=latent).moments
    return moments.second[0], moments.tangent
