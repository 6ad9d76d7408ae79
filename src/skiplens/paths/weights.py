"""The path weights ε_r(β) (Littwin & Wolf 2016, eq. 16) and their normaliser z."""

import math
from dataclasses import dataclass
from fractions import Fraction

import torch
from torch import Tensor

from skiplens.base.axes import Float, Int
from skiplens.base.errors import InvalidInputError
from skiplens.base.memory import budget_bytes, require_fits

_TEMPORARIES = 12  # float64 arrays of the result's size that are alive at once

Lengths = Int[Tensor, " lengths"]
Ratio = float | Tensor
"""A positive number, or a tensor of them of any shape."""


def path_weights(depth: int, depth_ratio: Ratio, lengths: Lengths | None = None) -> Float[Tensor, "*ratios lengths"]:
    """ε_r = C(p−1, r−1) β^r / z for the given lengths r, or for r = 1..p; the squares over all r add up to 1.

    Args:
        depth: p, the layers: one without skip, then p − 1 residual blocks.
        depth_ratio: β, one number or a tensor of any shape.
        lengths: The path lengths wanted; none means all of them.

    Examples:
        >>> (6 * path_weights(3, 1.0).square()).round(decimals=12).tolist()
        [1.0, 4.0, 1.0]
    """
    return log_path_weights(depth, depth_ratio, lengths).exp()


def log_path_weights(
    depth: int, depth_ratio: Ratio, lengths: Lengths | None = None
) -> Float[Tensor, "*ratios lengths"]:
    """The log of ε_r for the given lengths, or for r = 1..p; −∞ for lengths outside 1..p."""
    blocks, beta = check_depth(depth) - 1, ratio_tensor(depth_ratio)
    count = depth if lengths is None else len(lengths)
    require_fits(
        8 * _TEMPORARIES * beta.numel() * count,
        f"Path weights of {count} lengths for {beta.numel()} depth ratios",
        "Pass lengths= with the path lengths you need, or fewer depth ratios at a time.",
        budget_bytes(beta.device),
    )
    r = torch.arange(1, depth + 1, device=beta.device) if lengths is None else lengths.to(beta.device)
    log_norm = 0.5 * bulk(blocks, beta).log_sum
    return log_binomial(r - 1, blocks, beta[..., None]) - log_norm[..., None]


def log_normaliser(depth: int, depth_ratio: Ratio) -> Float[Tensor, "*ratios"]:
    """The log of z, z² = Σ_r C(p−1, r−1)² β^{2r}; z itself overflows at a depth of about 650."""
    blocks, beta = check_depth(depth) - 1, ratio_tensor(depth_ratio)
    return torch.log(beta) + blocks * torch.log1p(beta) + 0.5 * bulk(blocks, beta).log_sum


def path_counts(depth: int, width: int, inputs: int = 1) -> list[int]:
    """The number of paths of length r = 1..p, exactly: inputs · C(p−1, r−1) · width^r.

    Args:
        depth: p, the layers.
        width: n, the units of every layer.
        inputs: d, the input features; 1 gives the counts γ_r, d the masses ψ_r = d γ_r.

    Examples:
        >>> path_counts(depth=4, width=2, inputs=3)
        [6, 36, 72, 48]
    """
    _check_sizes(width, inputs)
    blocks = check_depth(depth) - 1
    return [inputs * math.comb(blocks, branches) * width ** (branches + 1) for branches in range(depth)]


def log_path_counts(depth: int, width: int, inputs: int = 1) -> Float[Tensor, " lengths"]:
    """The log of the number of paths of length r = 1..p, for depths where the numbers themselves have no place."""
    _check_sizes(width, inputs)
    blocks = check_depth(depth) - 1
    even_odds = torch.ones((), dtype=torch.float64)
    branches = torch.arange(depth)
    log_choices = log_binomial(branches, blocks, even_odds) + blocks * math.log(2)
    return math.log(inputs) + log_choices + (branches + 1) * math.log(width)


def _check_sizes(width: int, inputs: int) -> None:
    if width < 1 or inputs < 1:
        raise InvalidInputError(f"Width and inputs must be at least 1; got width={width}, inputs={inputs}.")


def peak_lengths(depth: int, depth_ratio: float | Fraction) -> tuple[int, ...]:
    """The lengths r with the largest weight ε_r: one, or two neighbours when pβ/(1+β) is a whole number below p.

    Examples:
        >>> peak_lengths(100, 0.5), peak_lengths(99, 0.5)
        ((34,), (33, 34))
    """
    beta, p = Fraction(check_positive(depth_ratio, "The depth ratio (beta)")), check_depth(depth)
    t = p * beta / (1 + beta)
    floor = math.floor(t)
    return (floor, floor + 1) if t == floor else (floor + 1,)


def peak_length(depth: int, depth_ratio: Ratio) -> Int[Tensor, "*ratios"]:
    """The most weighted length for each depth ratio, the shorter of two in a tie."""
    beta, p = ratio_tensor(depth_ratio), check_depth(depth)
    t = p * (beta / (1 + beta))
    peak = torch.floor(t).long() + 1
    doubtful = (t - t.round()).abs() <= 1e-14 * p  # rounding could have crossed a whole number: decide exactly
    exact = [peak_lengths(p, ratio)[0] for ratio in beta[doubtful].tolist()]
    peak[doubtful] = torch.tensor(exact, dtype=torch.long, device=peak.device)
    return peak


def depth_ratio_interval(depth: int, peak: int) -> tuple[float, float]:
    """The open interval of depth ratios β whose only peak is the length `peak`: (k−1)/(p−k+1) < β < k/(p−k)."""
    p, k = check_depth(depth), int(peak)
    if k != peak or not 1 <= k <= p:
        raise InvalidInputError(
            f"The wanted peak must be a whole number from 1 to the depth {p}; got {peak!r}. "
            "A path through j residual branches has length j + 1."
        )
    return (k - 1) / (p - k + 1), k / (p - k) if k < p else math.inf


def depth_ratio_for_peak(depth: int, peak: int) -> float:
    """A depth ratio well inside the interval that makes `peak` the most weighted length.

    The geometric mean of the interval's ends; at an open end (k = 1 or k = p) half or twice the other one. The weight
    scale that gives it: `BranchStatistics(...).branch_scale(ratio)`.
    """
    lower, upper = depth_ratio_interval(depth, peak)
    if lower == 0:
        return 1.0 if upper == math.inf else upper / 2
    return 2 * lower if upper == math.inf else math.sqrt(lower * upper)


@dataclass(frozen=True)
class PathMoments:
    """Moments of the path length r under ε_r².

    Attributes:
        mean: v′ = E r.
        variance: α² = Var r.
        factorial: v″ = E r(r − 1).
        curvature_ratio: B = v″/v′; the mixture has the complexity of a pure spin glass of order B + 1.
    """

    mean: Float[Tensor, "*ratios"]
    variance: Float[Tensor, "*ratios"]
    factorial: Float[Tensor, "*ratios"]
    curvature_ratio: Float[Tensor, "*ratios"]


def path_moments(depth: int, depth_ratio: Ratio, shortest: int = 1) -> PathMoments:
    """Moments of the path length for each depth ratio, at a cost that does not grow with the depth.

    Args:
        depth: p, the layers.
        depth_ratio: β, one number or a tensor of any shape.
        shortest: 1 keeps the linear term r = 1 as the network has it; 2 drops it and normalises again, as the
            paper's spin glass does (its figure 1f).
    """
    blocks, fewest = check_depth(depth) - 1, check_shortest(shortest) - 1
    if blocks < fewest:
        raise InvalidInputError(f"A network of depth {depth} has no path of length {shortest}; use a larger depth.")
    law = bulk(blocks, ratio_tensor(depth_ratio), fewest)
    branches = law.mean(law.branches)
    variance = law.mean((law.branches - branches[..., None]).square())
    mean = 1 + branches
    factorial = variance + branches.square() + branches  # r(r−1) = j² + j, exact also for tiny β
    return PathMoments(mean, variance, factorial, factorial / mean)


def path_weight_slopes(depth: int, depth_ratio: Ratio) -> Float[Tensor, "*ratios lengths"]:
    """dε_r/d log C = (r − v′) ε_r: paths shorter than the mean lose weight, longer ones gain."""
    mean = path_moments(depth, depth_ratio).mean
    r = torch.arange(1, depth + 1, device=mean.device)
    return (r - mean[..., None]) * path_weights(depth, depth_ratio)


def curvature_ratio_slope(depth: int, depth_ratio: Ratio, shortest: int = 1) -> Float[Tensor, "*ratios"]:
    """dB/d log C = 2 Var(r) under the weights r ε_r², hence the complexity grows with C."""
    law = bulk(check_depth(depth) - 1, ratio_tensor(depth_ratio), check_shortest(shortest) - 1)
    r = law.branches + 1
    mean_length = law.mean(r)
    size_biased_mean = law.mean(r.square()) / mean_length
    return 2 * law.mean(r * (r - size_biased_mean[..., None]).square()) / mean_length


_NODES_EACH_SIDE, _NODES_PER_DEVIATION = 34, 1.65
_RATIOS_AT_ONCE = 1000  # so that the temporaries of one piece stay in the cache


@dataclass(frozen=True)
class Bulk:
    """The squared binomial law on a few branch counts around its mode, with the step between them.

    Attributes:
        branches: j, the residual branches of a path, for each ratio and node.
        log_squares: 2 log b(j; q, a) + log(step): adding up exp of it is the sum over all j.
    """

    branches: Float[Tensor, "*ratios nodes"]
    log_squares: Float[Tensor, "*ratios nodes"]

    @property
    def log_sum(self) -> Float[Tensor, "*ratios"]:
        """The log of Σ_j b(j; q, a)²."""
        return torch.logsumexp(self.log_squares, -1)

    def mean(self, values: Float[Tensor, "*ratios nodes"]) -> Float[Tensor, "*ratios"]:
        """Σ_j ε² values."""
        return (torch.softmax(self.log_squares, -1) * values).sum(-1)


def spread(blocks: int, odds: Tensor) -> Tensor:
    """The standard deviation of the squared binomial law for many blocks, √(qβ/2)/(1+β)."""
    return torch.sqrt(blocks * odds / 2) / (1 + odds)


def mode(blocks: int, odds: Tensor) -> Tensor:
    """The most weighted number of branches (either of them in a tie, up to rounding)."""
    return torch.floor((blocks + 1) * (odds / (1 + odds))).clamp(max=blocks)


def bulk(blocks: int, odds: Float[Tensor, "*ratios"], fewest: int = 0) -> Bulk:
    """The nodes that carry the law, `fewest` branches and up.

    The law is smooth on the scale of its standard deviation σ, so a sum over every h-th j equals the sum over all j to
    exp(−4σ²(1 − cos(π/h))) (Poisson's summation formula), which is below one rounding for h ≤ σ/1.65. The outermost
    nodes, at least ten deviations away, carry less than that too.
    """
    step = torch.floor(spread(blocks, odds) / _NODES_PER_DEVIATION).clamp(min=1)
    offsets = torch.arange(-_NODES_EACH_SIDE, _NODES_EACH_SIDE + 1, device=odds.device)
    centre = mode(blocks, odds).clamp(min=min(fewest, blocks))
    branches = centre[..., None] + offsets * step[..., None]
    flat = branches.reshape(-1, len(offsets)), odds.reshape(-1, 1)
    pieces = zip(*(part.split(_RATIOS_AT_ONCE) for part in flat), strict=True)
    log_pmf = torch.cat([log_binomial(some, blocks, ratios) for some, ratios in pieces]).reshape(branches.shape)
    log_squares = 2 * log_pmf + torch.log(step)[..., None]
    return Bulk(branches, log_squares.masked_fill(branches < fewest, -math.inf))


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
    rest = q_in - j_in
    stirling = _stirling_error(q_in) - _stirling_error(j_in) - _stirling_error(rest)
    deviance = _deviance(j_in, q_in * (odds / (1 + odds))) + _deviance(rest, q_in / (1 + odds))
    log_pmf = stirling - deviance + 0.5 * torch.log(q_in / (j_in * rest)) - 0.5 * math.log(2 * math.pi)
    log_pmf = torch.where(j == q, -q * torch.log1p(1 / odds), torch.where(inside, log_pmf, -math.inf))
    return torch.where(j == 0, -q * torch.log1p(odds), log_pmf)


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


def ratio_tensor(depth_ratio: Ratio) -> Tensor:
    """The depth ratio β as a float64 tensor on its own device; refused unless positive and finite."""
    beta = torch.as_tensor(depth_ratio, dtype=torch.float64)
    good = torch.isfinite(beta) & (beta > 0)
    if not bool(good.all()):
        raise InvalidInputError(
            f"The depth ratio (beta) must be positive and finite; got {beta[~good].flatten()[0].item():g}. "
            "It is gate_probability * width * branch_scale / sqrt(distinct_weights): see BranchStatistics."
        )
    return beta


def check_depth(depth: int) -> int:
    """The depth p, refused unless it is a whole number of at least one layer."""
    if isinstance(depth, bool) or int(depth) != depth or depth < 1:
        raise InvalidInputError(
            f"The depth must be a whole number of layers, at least 1; got {depth!r}. "
            "A network with q residual blocks after its first layer has depth q + 1."
        )
    return int(depth)


def check_shortest(shortest: int) -> int:
    """The shortest path of a mixture: 1 as in the network, or 2 as in the paper's spin glass."""
    if shortest not in (1, 2):
        raise InvalidInputError(
            f"shortest must be 1 (the linear term is kept, as in the network) or 2 (dropped, as in the paper's "
            f"spin glass); got {shortest!r}."
        )
    return shortest


def check_positive(value: float | int | Fraction, name: str) -> float | int | Fraction:
    """A positive finite number, or an error that names it."""
    if not (math.isfinite(value) and value > 0):
        raise InvalidInputError(f"{name} must be positive and finite; got {float(value):g}.")
    return value
