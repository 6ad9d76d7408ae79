"""Complexity resolved by energy: how many critical points lie at H = Λ u (definition 4)."""

import math

import torch
from torch import Tensor

from skiplens.base import Float, InvalidInputError, refuse_if
from skiplens.papers.littwin2016_ensembles.spin_glass.complexity import Mixture, check_index, eigenvalue_cost

_PURE = 1e-12  # a spread α² below this times v′² is that of a pure model, whose energy fixes the Hessian's shift


def complexity_at_energy(mixture: Mixture, energy: float | Tensor, index: int | None = 0) -> Float[Tensor, "*energies"]:
    """The limit of (1/Λ) log E of the number of critical points of index k near the energy Λ u; None means all indices.

    sup over x of ½ + ½ log B + Ω(x) − k I(x) − u²/2 − (√v″ x − v′ u)²/(2α²), where x is the Hessian's shift: x ≤ −2 for
    points of finite index, any x for all indices. In a pure model u fixes x.
    """
    u = _finite(energy)
    if index is not None:
        check_index(index)
    if mixture.curvature <= 0:
        raise InvalidInputError(
            "A purely linear mixture has one minimum and one maximum and no complexity; add an order above 1."
        )
    if mixture.spread <= _PURE * mixture.slope**2:
        return _pure(mixture, u, index)
    return _mixed(mixture, u, 0 if index is None else index, everything=index is None)


def complexity_below_energy(
    mixture: Mixture, energy: float | Tensor, index: int | None = 0
) -> Float[Tensor, "*energies"]:
    """The same for all critical points with energy at most Λ u: the rate at u, or at the most numerous level below."""
    u = _finite(energy)
    return complexity_at_energy(mixture, u.clamp(max=most_numerous_energy(mixture, index)), index)


def most_numerous_energy(mixture: Mixture, index: int | None = 0) -> float:
    """u* where critical points of the index are most numerous; −2v′√v″/(v′+v″) for every finite index if B ≥ 1.

    All indices together are most numerous at 0 if B ≥ 1, else at the minimum (and, mirrored, at the maximum).
    """
    v1, v2 = mixture.slope, mixture.curvature
    if index is None and v2 >= v1:
        return 0.0
    k, c = check_index(index or 0), (v1 - v2) / (v1 + v2)
    edge = 2.0 if c <= 0 else 2 * (k + 1) / math.sqrt((k + 1) ** 2 - c * c)
    return -edge * v1 * math.sqrt(v2) / (v1 + v2)


def _pure(mixture: Mixture, u: Tensor, index: int | None) -> Tensor:
    x = mixture.slope * u / math.sqrt(mixture.curvature)
    if index is not None and bool((x > -2).any()):
        highest = -2 * math.sqrt(mixture.curvature) / mixture.slope
        raise InvalidInputError(
            f"In the pure {mixture.order}-spin model critical points of finite index have energies up to {highest:.6g} "
            f"per spin; got {u.max().item():.6g}. Above it use index=None, which counts points of all indices."
        )
    return _rate_without_spread(mixture, u, x, 0 if index is None else index)


def _mixed(mixture: Mixture, u: Tensor, k: int, everything: bool) -> Tensor:
    """The supremum over the shift, in closed form: its stationarity is quadratic in m, |x| = m + 1/m."""
    v1, v2, spread = mixture.slope, mixture.curvature, mixture.spread
    b, d = v2 / spread, v1 * math.sqrt(v2) * u / spread
    if everything:
        d = -d.abs()  # x and u may change sign together
    # (1 + k/2 − b) m² − d m − (k/2 + b) = 0, written so that its root in (0, 1) does not cancel; if the rate falls from
    # the edge m = 1 on, the edge is best
    root = torch.sqrt((d.square() + 4 * (1 + k / 2 - b) * (k / 2 + b)).clamp(min=0))
    m = torch.where(1 - 2 * b > d, 2 * (k / 2 + b) / (root - d), 1.0).clamp(max=1)
    x = -(m + 1 / m)
    if everything:
        inside = (d / (b - 0.5)).clamp(-2, 2) if b > 0.5 else torch.full_like(d, -2.0)
        x = torch.where(m < 1, x, inside)
        u = -u.abs()
    gap = math.sqrt(v2) * x - v1 * u
    return _rate_without_spread(mixture, u, x, k) - gap.square() / (2 * spread)


def _rate_without_spread(mixture: Mixture, u: Tensor, x: Tensor, k: int) -> Tensor:
    """½ + ½ log B + Ω(x) − k I(x) − u²/2, where Ω(x) = ∫ log|x − λ| over the semicircle law on [−2, 2]."""
    beyond = x.abs().clamp(min=2)
    m = 2 / (beyond + torch.sqrt(beyond.square() - 4))
    potential = torch.where(x.abs() < 2, x.square() / 4 - 0.5, m.square() / 2 - m.log())
    return 0.5 + 0.5 * math.log(mixture.curvature_ratio) + potential - k * eigenvalue_cost(m) - u.square() / 2


def _finite(energy: float | Tensor) -> Tensor:
    u = torch.as_tensor(energy, dtype=torch.float64)
    refuse_if(not bool(torch.isfinite(u).all()), "Energies per spin must be finite; got an infinite one or NaN.")
    return u
