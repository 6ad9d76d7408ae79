"""Figure 1(f) and theorem 5: how many critical points a mixture of path lengths has."""

import math
from collections.abc import Sequence

import torch

from skiplens.readings import Measurement
from skiplens.studies.claim import Claim, Judgement
from skiplens.studies.littwin2016_ensembles.claims.always import judge_always
from skiplens.studies.littwin2016_ensembles.measure.mixtures import equation_31
from skiplens.studies.littwin2016_ensembles.settings import DEPTH
from skiplens.studies.selection import chosen, stacked, values
from skiplens.studies.statistics import Band, decide, decide_correction, exactly, over_seeds

POSITIVE = Band(0.0, math.inf)
ROUNDING = 1e-10
COUNT = 0.1
"""Tolerance of a mean number of critical points, relative."""


def judge_increase(readings: Sequence[Measurement]) -> Judgement:
    """Figure 1(f)."""
    (found,) = chosen(readings, "curve")
    rises = found["complexity"].diff()
    off = (found["complexity"] - found["summed_complexity"]).abs().max()
    sentence = (
        f"Smallest rise of θ from one β to the next, {len(rises) + 1} values from 1e-3 to 1e3, p = {DEPTH}, without "
        f"the linear term. θ is off by at most {float(off):.1e} from equation 31 with moments summed in whole numbers."
    )
    return decide(exactly(rises), POSITIVE, sentence)


def judge_sums(readings: Sequence[Measurement]) -> Judgement:
    """The curve itself."""
    (found,) = chosen(readings, "curve")
    off = (found["complexity"] - found["summed_complexity"]).abs().max()
    sentence = "Largest deviation of the curve from equation 31 with moments added up in whole numbers."
    return decide(exactly(off), Band.around(0.0, ROUNDING), sentence)


def judge_linear_term(readings: Sequence[Measurement]) -> Judgement:
    """Equation 31 where the linear term makes B < 1."""
    (found,) = chosen(readings, "finite_size")
    exact, printed = found["log_minima"][-1], float(found["printed"][-1])
    return decide_correction(
        (exactly(exact), Band.around(printed, 0.01)),
        (exactly(exact), Band.around(0.0, 0.01)),
        f"(1/Λ) log of the exact mean number of minima, Λ = {int(found['spins'][-1])}, β = "
        f"{found.setting('depth_ratio')}, with the linear term that the network has. Equation 31 gives {printed:.3f}, "
        "but every smooth function on a sphere has a minimum: θ_0 = 0 where v″ < v′.",
    )


def judge_counts(readings: Sequence[Measurement]) -> Judgement:
    """Counted minima against the exact mean."""
    ratios = values(readings, "depth_ratio", "counts", spins=2)
    found = torch.stack([_minima(readings, depth_ratio=ratio) for ratio in ratios], dim=1)
    expected = torch.stack([_expected(readings, depth_ratio=ratio) for ratio in ratios])
    sentence = (
        "Largest relative deviation over β of the mean number of minima found in sampled spin glasses (p = 10, two "
        "spins) from the exact mean (Kac-Rice)."
    )
    return decide(over_seeds(found / expected - 1), Band.around(0.0, COUNT), sentence)


def judge_counted_increase(readings: Sequence[Measurement]) -> Judgement:
    """Figure 1(f) in sampled spin glasses."""
    ratios = values(readings, "depth_ratio", "counts", spins=2)
    found = torch.stack([_minima(readings, depth_ratio=ratio) for ratio in ratios], dim=1)
    spread = found[:, 2:].diff(dim=1)
    sentence = f"Smallest rise of the mean number of minima found, from β = {ratios[2]:g} on; p = 10, two spins."
    return decide(over_seeds(spread), POSITIVE, sentence)


def judge_maximiser(readings: Sequence[Measurement]) -> Judgement:
    """Theorem 5: where climbing ends."""
    columns = [stacked(readings, "share_of_highest_order", "climbs", order=order) for order in _orders(readings)]
    sentence = "Smallest ε_p² at which mixtures end that climb θ from random starts, p = 3 to 50."
    return decide(over_seeds(torch.stack(columns, dim=1)), Band.around(1.0, 1e-6), sentence)


def judge_bound(readings: Sequence[Measurement]) -> Judgement:
    """Theorem 5: no mixture is above the pure model."""
    gaps = torch.stack(
        [stacked(readings, "random", "climbs", order=order) - equation_31(order - 1) for order in _orders(readings)],
        dim=1,
    )
    draws = chosen(readings, "climbs")[0].setting("draws")
    sentence = (
        f"Share of the orders (p = 3 to 50) at which the best of {draws} random mixtures has a smaller θ than the pure "
        f"model; the closest is {float(-gaps.max()):.2g} below."
    )
    return judge_always((gaps < 0).double().mean(1), sentence)


def judge_printed_bound(readings: Sequence[Measurement]) -> Judgement:
    """Equation 48."""
    best = stacked(readings, "climbed", "climbs", order=10)
    chain, pure = 0.5 * math.log(9), equation_31(9)
    return decide_correction(
        (exactly(chain), Band.around(pure, ROUNDING)),
        (over_seeds(best), Band.around(pure, ROUNDING)),
        "Highest θ reached by climbing mixtures, p = 10. The minimum in equation 48 is 0, at r = 2, not at r = p: the "
        f"chain only bounds θ by ½ log(p-1) = {chain:.4f}. The theorem holds all the same: θ grows with v″/v′ ≤ p-1.",
    )


def judge_network(readings: Sequence[Measurement]) -> Judgement:
    """No β reaches the conventional network."""
    (found,) = chosen(readings, "curve")
    gap = equation_31(DEPTH - 1) - found["complexity"]
    sentence = f"Smallest distance of θ(β) below the conventional network's {equation_31(DEPTH - 1):.4f}, p = {DEPTH}."
    return decide(exactly(gap), POSITIVE, sentence)


def judge_fewer(readings: Sequence[Measurement]) -> Judgement:
    """Counted minima with and without shortcuts."""
    mixed, pure = (_minima(readings, spins=3, pure=pure) for pure in (False, True))
    sentence = (
        "Minima of the conventional network's spin glasses minus those of the ResNet's (β = 1), means of what was "
        f"found; p = 4, three spins. Exact: {float(_expected(readings, spins=3, pure=True)):.3f} and "
        f"{float(_expected(readings, spins=3, pure=False)):.3f}."
    )
    return decide(over_seeds(pure - mixed), POSITIVE, sentence)


def _minima(readings: Sequence[Measurement], **settings: object) -> torch.Tensor:
    return stacked(readings, "minima", "counts", **settings)


def _expected(readings: Sequence[Measurement], **settings: object) -> torch.Tensor:
    return stacked(readings, "expected_minima", "counts", **settings)[0]


def _orders(readings: Sequence[Measurement]) -> list[int]:
    return values(readings, "order", "climbs")


FIG1F = (
    Claim(
        "increase", "The number of critical points of finite index grows with β.", "Figure 1f", "> 0", judge_increase
    ),
    Claim("curve", "θ = ½ log(v″/v′) - (v″-v′)/(v″+v′).", "Eq. 31", "equal", judge_sums),
    Claim(
        "linear_term",
        "The same with the network's paths of length 1.",
        "Eq. 31, Eq. 15",
        "θ of Eq. 31",
        judge_linear_term,
    ),
    Claim(
        "counts",
        "Spin glasses have the mean number of critical points that the theory says.",
        "Section 5",
        "equal",
        judge_counts,
    ),
    Claim(
        "counted_increase",
        "Sampled spin glasses have more minima for larger β.",
        "Figure 1f",
        "> 0",
        judge_counted_increase,
    ),
)

THM5 = (
    Claim("maximiser", "θ is largest for ε_p = 1, all others 0.", "Theorem 5, Eq. 33", "ε_p² = 1", judge_maximiser),
    Claim("bound", "Every other mixture has a smaller θ.", "Theorem 5", "always", judge_bound),
    Claim(
        "equation_48",
        "The bound of the chain of inequalities is θ of the pure model.",
        "Proof of Theorem 5, Eq. 48",
        "½ log(p-1) - (1 - 2/p)",
        judge_printed_bound,
    ),
    Claim(
        "network",
        "A ResNet has fewer critical points than a conventional network of its depth.",
        "Section 5, after Theorem 5",
        "> 0",
        judge_network,
    ),
    Claim(
        "counted",
        "Sampled spin glasses of a ResNet have fewer minima than those of a conventional network.",
        "Section 5, after Theorem 5",
        "> 0",
        judge_fewer,
    ),
)
