"""The binomial law in log space, to a few roundings at the mode and in the tails, for any number of trials."""

import math

import torch
from torch import Tensor

from skiplens.core.axes import Float

_LAST_TABLED = 15
_STIRLING_ERRORS = [0.0] + [
    math.fsum([math.log(math.factorial(n)), n, -(n + 0.5) * math.log(n), -0.5 * math.log(2 * math.pi)])
    for n in range(1, _LAST_TABLED + 1)
]


def log_binomial(successes: Tensor, trials: Tensor | int, odds: Tensor) -> Float[Tensor, "..."]:
    """The log of b(j; q, a) with a = odds/(1 + odds); −∞ outside 0..q. Arguments broadcast.

    Saddle-point form (Loader 2000): no difference of large log-gammas, so the error stays at the rounding of the
    result itself; lgamma would lose six digits at q = 10^5.
    """
    q = torch.as_tensor(trials, dtype=torch.float64, device=odds.device)
    j, q, odds = torch.broadcast_tensors(successes.to(torch.float64), q, odds)
    inside = (j > 0) & (j < q)
    j_in, q_in = torch.where(inside, j, 1.0), torch.where(inside, q, 2.0)
    log_pmf = _log_inner(j_in, q_in, odds)
    log_pmf = torch.where(j == q, -q * torch.log1p(1 / odds), torch.where(inside, log_pmf, -math.inf))
    return torch.where(j == 0, -q * torch.log1p(odds), log_pmf)


def _log_inner(j: Tensor, q: Tensor, odds: Tensor) -> Tensor:
    """The saddle-point form, for 0 < j < q."""
    rest = q - j
    stirling = _stirling_error(q) - _stirling_error(j) - _stirling_error(rest)
    deviance = _deviance(j, q * (odds / (1 + odds))) + _deviance(rest, q / (1 + odds))
    return stirling - deviance + 0.5 * torch.log(q / (j * rest)) - 0.5 * math.log(2 * math.pi)


def _stirling_error(n: Tensor) -> Tensor:
    """The log of n! minus Stirling's formula, for whole n ≥ 1."""
    table = torch.tensor(_STIRLING_ERRORS, dtype=torch.float64, device=n.device)
    inverse = 1 / n
    square = inverse * inverse
    series = 1 / 1260 - square * (1 / 1680 - square / 1188)
    series = inverse * (1 / 12 - square * (1 / 360 - square * series))
    return torch.where(n > _LAST_TABLED, series, table[n.clamp(max=_LAST_TABLED).long()])


def _deviance(x: Tensor, expected: Tensor) -> Tensor:
    """The deviance x log(x/m) + m − x without cancellation near x = m."""
    difference = x - expected
    v = difference / (x + expected)
    square = torch.where(v.abs() < 0.1, v * v, 0.0)
    series = torch.zeros_like(v)
    for odd in range(19, 1, -2):  # 0.01^9/19 is below one rounding
        series = (series + 1 / odd) * square
    near = difference * v + 2 * x * v * series
    return torch.where(v.abs() < 0.1, near, x * torch.log(x / expected) - difference)
