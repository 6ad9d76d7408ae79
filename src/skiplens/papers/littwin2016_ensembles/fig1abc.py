"""Figures 1(a-c): the path weights ε_r (equation 16) for three depth ratios, checked against sums of whole numbers."""

import math
from fractions import Fraction
from functools import partial

import torch
from torch import Tensor

from skiplens.base import Float, Settings, option
from skiplens.papers.littwin2016_ensembles.common import CLOSED_FORM, DEPTH, RATIOS, once
from skiplens.papers.statistics import Band, Readings, decide, exactly, figure, raw_tables
from skiplens.papers.study import Claim, Item, Judgement, Preset
from skiplens.paths.weights import path_weights
from skiplens.plots.figure import Bars, Figure, Reference, numbers
from skiplens.sweeps.run import Run

ROUNDING = 1e-12  # of closed forms against sums of whole numbers
NARROW = 0.2  # a band of lengths is called narrow if it is at most this share of the depth; the paper gives no number


class Weights(Settings):
    """The path weights of one depth ratio (figures 1a to 1c)."""

    depth: int = option(DEPTH, "layers")
    depth_ratio: float = option(0.5, "β")


def weights(settings: Weights) -> dict[str, Tensor]:
    """ε_r for all lengths, fast and in whole numbers."""
    return {
        "length": torch.arange(1, settings.depth + 1),
        "weight": path_weights(settings.depth, settings.depth_ratio),
        "exact_weight": exact_weights(settings.depth, Fraction(settings.depth_ratio)),
    }


def histogram_runs(preset: Preset, seed: int, depth_ratio: float) -> list[Run]:
    """The path weights of one depth ratio; the same at all presets."""
    return [once(weights, Weights(depth_ratio=depth_ratio))]


def judge_formula(readings: Readings) -> Judgement:
    """Equation 16."""
    found = (readings[0]["weight"] / readings[0]["exact_weight"] - 1).abs().max()
    sentence = "Largest relative deviation of a weight from C(p-1, r-1) β^r over its norm, added up in whole numbers."
    return decide(exactly(found), Band.around(0.0, ROUNDING), sentence)


def judge_peak(readings: Readings) -> Judgement:
    """The peak of a histogram against theorem 1."""
    beta, depth = readings[0].setting("depth_ratio"), readings[0].setting("depth")
    peak = int(readings[0]["weight"].argmax()) + 1
    limit = depth * beta / (1 + beta)
    sentence = f"Length with the largest weight; βp/(1+β) = {limit:.2f}, and lengths are whole numbers."
    return decide(exactly(float(peak)), Band.around(limit, 1.0), sentence)


def judge_side(readings: Readings, deep: bool) -> Judgement:
    """On which side of half the depth a histogram lies."""
    share = (float(readings[0]["weight"].argmax()) + 1) / readings[0].setting("depth")
    band = Band(0.5, 1.0) if deep else Band(0.0, 0.5)
    return decide(exactly(share), band, "Length with the largest weight over the depth.")


def judge_narrow(readings: Readings) -> Judgement:
    """The fewest lengths that hold most of the energy, over the depth."""
    squares = readings[0]["weight"].square().sort(descending=True).values
    share = (int((squares.cumsum(0) < 0.95).sum()) + 1) / len(squares)
    sentence = "The fewest lengths that hold 95 % of Σε², over the depth. The paper gives no number for narrow."
    return decide(exactly(share), Band(0.0, NARROW), sentence)


def _histogram(beta: float) -> tuple[Claim, ...]:
    panel = "abc"[RATIOS.index(beta)]
    side, half = ("deeper", "> 0.5") if beta > 1 else ("shallower", "< 0.5")
    place, few = f"{100 * beta / (1 + beta):.1f} for β = {beta:g}, p = 100", f"at most {NARROW:g} of the lengths"
    narrow = "The weights are concentrated in a narrow band near the largest."
    sides, judge = f"The ensemble is {side} than half the depth.", partial(judge_side, deep=beta > 1)
    return (
        Claim("formula", "The bars are ε_r = C(p-1, r-1) β^r / z.", "Eq. 16", "deviation 0", judge_formula),
        Claim("peak", "The largest weight is at r = βp/(1+β).", f"Figure 1{panel}, Theorem 1", place, judge_peak),
        Claim("side", sides, f"Figure 1{panel}, Section 4", half, judge),
        Claim("narrow", narrow, f"Figure 1{panel}, Section 3", few, judge_narrow),
    )


def draw_histogram(readings: Readings) -> tuple[Figure, ...]:
    """A panel of figure 1(a-c)."""
    reading = readings[0]
    beta, depth = reading.setting("depth_ratio"), reading.setting("depth")
    panel = "abc"[RATIOS.index(beta)]
    peak = int(reading["weight"].argmax()) + 1
    words = ("histogram", f"Figure 1{panel}: path weights, β = {beta:g}, p = {depth}")
    caption = f"Paths of length {peak} weigh most; the line is βp/(1+β) = {depth * beta / (1 + beta):.1f}."
    marks = (
        # A bar for length 0, which no path has, so that bars stand at their lengths.
        Bars(tuple(map(str, range(depth + 1))), (0.0, *numbers(reading["weight"])), "ε_r"),
        Reference(depth * beta / (1 + beta), "βp/(1+β)", axis="x"),
    )
    return (figure(words, caption, ("path length r", "weight ε_r"), marks),)


def whole_weights(depth: int, ratio: Fraction, top: int = -1) -> list[int]:
    """C(p−1, r−1) a^r b^{p−r} for r = 1..p, β = a/b: ε_r but for a factor; `top` 0 takes the proofs' C(p, r)."""
    a, b = ratio.numerator, ratio.denominator
    return [math.comb(depth + top, r + top) * a**r * b ** (depth - r) for r in range(1, depth + 1)]


def exact_weights(depth: int, ratio: Fraction) -> Float[Tensor, " lengths"]:
    """ε_r, each rounded once or twice."""
    whole = whole_weights(depth, ratio)
    total = sum(weight * weight for weight in whole)
    return torch.tensor([math.sqrt(weight * weight / total) for weight in whole], dtype=torch.float64)


def exact_peaks(depth: int, ratio: Fraction, top: int = -1) -> tuple[int, ...]:
    """All lengths with the largest weight, by comparing whole numbers."""
    whole = whole_weights(depth, ratio, top)
    largest = max(whole)
    return tuple(r for r, weight in enumerate(whole, start=1) if weight == largest)


def exact_energy_outside(depth: int, ratio: Fraction, first: int, last: int) -> float:
    """Σ ε_r² over all lengths outside first..last, rounded once."""
    squares = [weight * weight for weight in whole_weights(depth, ratio)]
    inside = sum(squares[first - 1 : last])
    return (sum(squares) - inside) / sum(squares)


def exact_curvature_ratio(depth: int, ratio: Fraction, shortest: int) -> float:
    """B = Σ r(r−1) ε_r² / Σ r ε_r² over lengths from `shortest` on, rounded once."""
    lengths = range(shortest, depth + 1)
    whole = whole_weights(depth, ratio)
    squares = {r: whole[r - 1] ** 2 for r in lengths}
    return sum(r * (r - 1) * squares[r] for r in lengths) / sum(r * squares[r] for r in lengths)


def band_around_peak(depth: int, ratio: Fraction, margin: Fraction) -> tuple[int, int]:
    """The lengths within `margin` of βp/(1+β), relative to it: rounded inwards, in whole numbers."""
    middle = depth * ratio / (1 + ratio)
    return math.ceil((1 - margin) * middle), math.floor((1 + margin) * middle)


ITEMS = tuple(
    Item(
        f"fig1{panel}",
        f"path weights for β = {beta:g}",
        partial(histogram_runs, depth_ratio=beta),
        _histogram(beta),
        draw_histogram,
        raw_tables,
        (CLOSED_FORM,),
    )
    for panel, beta in zip("abc", RATIOS, strict=True)
)
