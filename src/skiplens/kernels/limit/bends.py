"""Places where a function jumps or bends, and what they add to its expectations, in closed form.

An expansion in polynomials hardly converges for a bend, and an integral by points misses what lies between two of them.
So f is taken apart: f(z) = smooth + Σ (value_j + slope_j·(z − place_j))·1[z > place_j]. Products of two such pieces are
moments of a truncated pair of Gaussian variables (Rosenbaum 1961, Moments of a truncated bivariate normal
distribution), with its probability by Owen's function T.
"""

import math
from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

from skiplens.base import Float, InvalidInputError

_INTERVALS, _MOST, _HALVINGS = 1024, 16, (8, 44)
_JUMP, _STEP = 1e-7, 1e-4  # the smallest jump that counts, and the distance at which curvatures are read
_TINY = 1e-300
_POLE = 1e3  # times the values around it


class Bends(NamedTuple):
    """Jumps of a function, of its slope and of its curvature."""

    places: Float[Tensor, " bends"]
    jumps: Float[Tensor, "3 bends"]


def bends_of(function: Callable[[Tensor], Tensor], reach: float, like: Tensor) -> Bends:
    """Where |z| < `reach`: intervals are halved towards what does not become smaller, 16 of them at most."""
    edges = torch.linspace(-reach, reach, _INTERVALS + 1, dtype=like.dtype, device=like.device)
    left, right, largest = edges[:-1], edges[1:], _values(function, edges)[0].abs().max()
    for halvings in _HALVINGS:
        for _ in range(halvings):
            middle = (left + right) / 2
            parts = _values(function, torch.stack([left, middle, right]))
            first, second = ((parts[:, i + 1] - parts[:, i]).abs().sum(dim=0) for i in (0, 1))
            left, right = torch.where(first > second, left, middle), torch.where(first > second, middle, right)
        parts = _values(function, torch.stack([left, right]))
        kept = (parts[:, 1] - parts[:, 0]).abs().sum(dim=0).topk(min(_MOST, len(left))).indices
        left, right = left[kept], right[kept]
    # elu has only a jump of its curvature, at 0, which is looked for nowhere else
    left, right = (torch.cat([part, part.new_zeros(1)]) for part in (left, right))
    values, slopes = _values(function, torch.stack([left, right])).diff(dim=1).squeeze(1)
    if not bool(_values(function, torch.stack([left, right]))[0].abs().max() <= _POLE * largest < math.inf):
        raise InvalidInputError("the nonlinearity before it has a pole, so its kernel is infinite")
    steps = _STEP * torch.arange(1, 4, dtype=like.dtype, device=like.device)[:, None]
    beyond = [_values(function, edges)[1] for edges in (right + steps, left - steps)]
    curvatures = sum(8 * s[1] - 5 * s[0] - 3 * s[2] for s in beyond) / (2 * _STEP)
    jumps = torch.stack([values, slopes, torch.as_tensor(curvatures)])
    found = jumps[:2].abs().amax(dim=0) > _JUMP
    if not bool((left[found].abs() < 8 * _STEP).any()):
        found[-1] = bool(jumps[2, -1].abs() > _STEP)
    return Bends(((left + right) / 2)[found], jumps[:, found])


def _values(function: Callable[[Tensor], Tensor], z: Tensor) -> Tensor:
    """The function and its slope, (2, *z)."""
    with torch.enable_grad():
        z = z.clone().requires_grad_()
        values = function(z)
        (slopes,) = torch.autograd.grad(values.sum(), z)
    return torch.stack([values.detach(), slopes])


def coefficients(
    bends: Bends, order: int, deviation: Float[Tensor, " rows"], terms: int
) -> Float[Tensor, "rows terms"]:
    """E p(σu) h_k(u) of what bends add to the function (order 0) or to its slope (order 1)."""
    if not len(bends.places):
        return deviation.new_zeros(len(deviation), terms)
    sigma = deviation.clamp_min(math.sqrt(_TINY))[:, None]
    tau = bends.places / sigma
    density, beyond = _density(tau), torch.special.ndtr(-tau)
    scaled = [density, tau * density]  # φ h_k, which stays small where h_k is large
    for k in range(1, terms):
        scaled.append((tau * scaled[k] - math.sqrt(k) * scaled[k - 1]) / math.sqrt(k + 1))
    steps = [beyond, *(scaled[k - 1] / math.sqrt(k) for k in range(1, terms))]
    ramps = [density - tau * beyond, beyond, *(scaled[k - 2] / math.sqrt(k * (k - 1)) for k in range(2, terms))]
    jump, slope = bends.jumps[order], bends.jumps[order + 1] * sigma
    found = [(jump * step + slope * ramp).sum(dim=1) for step, ramp in zip(steps, ramps, strict=True)]
    return torch.stack(found, dim=1)


def pieces_at(bends: Bends, order: int, z: Tensor) -> Tensor:
    """What bends add to the function (order 0) or to its slope (order 1) at z."""
    total = torch.zeros_like(z)
    for place, jump, slope in zip(bends.places, bends.jumps[order], bends.jumps[order + 1], strict=True):
        total = total + (jump + slope * (z - place)) * (z > place)
    return total


def products(rho: Tensor, one: tuple[Bends, Tensor], other: tuple[Bends, Tensor]) -> list[Tensor]:
    """E p(σu) p′(σ′v) of what bends add, for the functions and for their slopes; with σ that broadcast to ρ."""
    (left, sigma), (right, other_sigma) = ((bends, d.clamp_min(math.sqrt(_TINY))) for bends, d in (one, other))
    total = [torch.zeros_like(rho), torch.zeros_like(rho)]
    for i, place in enumerate(left.places):
        for j, beside in enumerate(right.places):
            s, t = place / sigma, beside / other_sigma
            moments = _truncated(rho, s, t)
            for order in (0, 1):
                a, c = left.jumps[order, i], right.jumps[order, j]
                b, d = left.jumps[order + 1, i] * sigma, right.jumps[order + 1, j] * other_sigma
                a, c = a - b * s, c - d * t
                weights = a * c, b * c, a * d, b * d
                total[order] = total[order] + sum(w * m for w, m in zip(weights, moments, strict=True))
    return total


def _truncated(rho: Tensor, s: Tensor, t: Tensor) -> tuple[Tensor, ...]:
    """Moments 1, u, v and uv where u > s and v > t, for standard normal u and v of correlation ρ."""
    s, t = (torch.where(part == 0, -_TINY, part) for part in (s, t))
    root = (1 - rho * rho).clamp_min(0).sqrt()
    one, other = (_over(far - rho * near, root) for near, far in ((s, t), (t, s)))
    of_s, of_t = _density(s) * torch.special.ndtr(-one), _density(t) * torch.special.ndtr(-other)
    opposite = ((s > 0) != (t > 0)).to(rho)
    inside = (torch.special.ndtr(-s) + torch.special.ndtr(-t) - opposite) / 2
    for near, product in ((s, one), (t, other)):
        from scipy.special import owens_t  # its package takes a third of a second to load, and few kernels need it

        inside = inside - torch.as_tensor(owens_t(near.cpu().numpy(), (product / near).cpu().numpy())).to(rho)
    both = rho * (inside + s * of_s + t * of_t) + root * _density(s) * _density(one)
    return inside, of_s + rho * of_t, of_t + rho * of_s, both


def _density(z: Tensor) -> Tensor:
    return (-z * z / 2).exp() / math.sqrt(2 * math.pi)


def _over(numerator: Tensor, root: Tensor) -> Tensor:
    """A quotient that is infinite, or 0 for 0, where the root is 0."""
    found = torch.where(root > 0, numerator / root.clamp_min(_TINY), numerator.sign() * math.inf)
    return found.nan_to_num(0.0, math.inf, -math.inf)
