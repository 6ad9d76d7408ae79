"""Figures 1(a-c), theorems 1 and 2 and lemma 4: path weights, in closed form and measured on random networks."""

import math
from collections.abc import Sequence
from functools import partial

import torch

from skiplens.core.axes import Tensor
from skiplens.readings import Measurement
from skiplens.studies.claim import Claim, Judgement
from skiplens.studies.littwin2016_ensembles.settings import RATIOS
from skiplens.studies.selection import chosen, stacked
from skiplens.studies.statistics import Band, decide, decide_correction, exactly, over_seeds
from skiplens.theory.path_weights import path_moments

ROUNDING = 1e-12
"""Of closed forms against sums of whole numbers."""

NARROW = 0.2
"""A band of lengths is called narrow if it is at most this share of the depth; the paper gives no number."""

COHERENT, INCOHERENT = 0.06, 0.04
"""Largest total variation between a measured spectrum and the law it follows."""


def narrow_share(reading: Measurement, energy: float = 0.95) -> float:
    """The fewest lengths that hold a share of the energy, over the depth."""
    squares = reading["weight"].square().sort(descending=True).values
    return (int((squares.cumsum(0) < energy).sum()) + 1) / len(squares)


def judge_formula(readings: Sequence[Measurement]) -> Judgement:
    """Equation 16."""
    found = (readings[0]["weight"] / readings[0]["exact_weight"] - 1).abs().max()
    sentence = "Largest relative deviation of a weight from C(p-1, r-1) β^r over its norm, added up in whole numbers."
    return decide(exactly(found), Band.around(0.0, ROUNDING), sentence)


def judge_peak(readings: Sequence[Measurement]) -> Judgement:
    """The peak of a histogram against theorem 1."""
    beta, depth = readings[0].setting("depth_ratio"), readings[0].setting("depth")
    peak = int(readings[0]["weight"].argmax()) + 1
    limit = depth * beta / (1 + beta)
    sentence = f"Length with the largest weight; βp/(1+β) = {limit:.2f}, and lengths are whole numbers."
    return decide(exactly(float(peak)), Band.around(limit, 1.0), sentence)


def judge_side(readings: Sequence[Measurement], deep: bool) -> Judgement:
    """On which side of half the depth a histogram lies."""
    share = (float(readings[0]["weight"].argmax()) + 1) / readings[0].setting("depth")
    band = Band(0.5, 1.0) if deep else Band(0.0, 0.5)
    return decide(exactly(share), band, "Length with the largest weight over the depth.")


def judge_narrow(readings: Sequence[Measurement]) -> Judgement:
    """The width of a histogram."""
    sentence = "The fewest lengths that hold 95 % of Σε², over the depth. The paper gives no number for narrow."
    return decide(exactly(narrow_share(readings[0])), Band(0.0, NARROW), sentence)


def judge_limit(readings: Sequence[Measurement]) -> Judgement:
    """Theorem 1."""
    found = chosen(readings, "peaks")
    gaps = torch.stack([reading["lengths_off"][-1] / reading["depth"][-1] for reading in found])
    most = max(float(reading["lengths_off"].abs().max()) for reading in found)
    sentence = (
        f"Peak over depth minus β/(1+β) at p = {int(found[0]['depth'][-1])}, five ratios. At every depth from 10 on "
        f"the peak is at most {most:.3g} lengths away, whether or not βp/(1+β) is a whole number: the hypothesis of "
        "the theorem is not needed, it is the case of a tie."
    )
    return decide(exactly(gaps), Band.around(0.0, 1e-4), sentence)


def judge_proof(readings: Sequence[Measurement]) -> Judgement:
    """The binomials of the proofs."""
    (found,) = chosen(readings, "peak_formulas")
    cases = int(found["cases"])
    wrong, right = (float(found[name]) / cases for name in ("missed_by_proof", "missed"))
    return decide_correction(
        (exactly(wrong), Band.around(0.0, 0.0)),
        (exactly(right), Band.around(0.0, 0.0)),
        f"Share of {cases} cases (depth and terms of β up to {found.setting('largest')}) in which the peak is missed. "
        f"The proofs take C(p, r), which misses {wrong:.0%}; with C(p-1, r-1) it is ⌊t⌋+1 or {{t, t+1}}, t = βp/(1+β).",
    )


def judge_initial(readings: Sequence[Measurement]) -> Judgement:
    """Random networks with weights of variance 1/n."""
    shares = _lengths(readings, "relu")
    sentence = "Mean path length over depth, random networks R(Wx) with C = 1/√n; β = ρ = 1/2 would give 0.33."
    return decide(over_seeds(shares), Band(-math.inf, 0.5), sentence)


def judge_concentration(readings: Sequence[Measurement]) -> Judgement:
    """Theorem 2."""
    found = chosen(readings, "tails")
    inside = [-math.expm1(float(reading["log_outside"][-1])) for reading in found]
    shallow = [-math.expm1(float(reading["log_outside"][0])) for reading in found]
    sentence = (
        f"Σε² within a fifth of the peak at p = {int(found[0]['depth'][-1])}, three ratios. At p = 100 the same band "
        f"holds {', '.join(f'{value:.3f}' for value in shallow)}."
    )
    return decide(exactly(inside), Band.around(1.0, ROUNDING), sentence)


def judge_speed(readings: Sequence[Measurement]) -> Judgement:
    """How fast the tails of theorem 2 vanish."""
    ratios = []
    for reading in chosen(readings, "tails"):
        depth, logs = reading["depth"].double(), reading["log_outside"]
        ratios.append(-(logs[-1] - logs[-2]) / (depth[-1] - depth[-2]) / reading["limiting_rate"])
    sentence = (
        "Rate at which the energy outside vanishes between the two largest depths, over 2 min KL(α‖a), the rate that "
        "Stirling's formula gives for a = β/(1+β) and the ends α of the band; the paper says only that it vanishes."
    )
    return decide(exactly(torch.stack(ratios)), Band.around(1.0, 0.02), sentence)


def judge_legendre(readings: Sequence[Measurement]) -> Judgement:
    """Equation 37."""
    (found,) = chosen(readings, "normaliser")
    return decide_correction(
        (exactly(found["printed"] / found["proof_sum"] - 1), Band.around(0.0, ROUNDING)),
        (exactly(found["corrected"] / found["sum"] - 1), Band.around(0.0, ROUNDING)),
        f"Relative deviation from the sum at p = 5, β = 0.3. Printed: {float(found['printed']):.4f} for "
        f"{float(found['proof_sum']):.4f}, the term r = 0 too many. Right: z² = β² (1-β²)^(p-1) P_(p-1).",
    )


def judge_coherent(readings: Sequence[Measurement]) -> Judgement:
    """The squared law on the paper's own network."""
    found = stacked(readings, "squared_binomial_distance", "spectra", branch="relu", scaling="none")[:, 0]
    sentence = "Total variation between the path spectrum of random networks R(Wx) and the nearest ε²(β)."
    return decide(over_seeds(found), _at_most(COHERENT), sentence)


def judge_incoherent(readings: Sequence[Measurement]) -> Judgement:
    """The squared law on branches of zero mean."""
    squared, plain = (
        stacked(readings, f"{name}_distance", "spectra", branch="two_layer")[:, 0]
        for name in ("squared_binomial", "binomial")
    )
    return decide_correction(
        (over_seeds(squared), _at_most(COHERENT)),
        (over_seeds(plain), _at_most(INCOHERENT)),
        "Total variation between the path spectrum of random networks V R(Wx) and the nearest binomial law: branches "
        f"of mean zero do not add in phase. The nearest ε²(β) is {float(squared.mean()):.2f} away.",
    )


def judge_any_depth(readings: Sequence[Measurement]) -> Judgement:
    """Lemma 4."""
    (found,) = chosen(readings, "reach")
    missed = ((found["peak"] != found["wanted"]) | (found["tied"] > 0)).double().mean()
    sentence = (
        f"Share of the lengths 1..{found.setting('depth')} that are not the only peak at a β inside "
        "(k-1)/(p-k+1) < β < k/(p-k); peaks are found by comparing whole numbers."
    )
    return decide(exactly(missed), Band.around(0.0, 0.0), sentence)


def judge_derivative(readings: Sequence[Measurement]) -> Judgement:
    """Equation 19."""
    (found,) = chosen(readings, "slopes")
    printed, corrected = (
        (found[name] - found["difference"]).abs().max() / found["difference"].abs().max()
        for name in ("printed", "corrected")
    )
    band = Band.around(0.0, 1e-6)
    return decide_correction(
        (exactly(printed), band),
        (exactly(corrected), band),
        "Largest deviation of (r - v′) ε_r / C from differences of whole-number weights, over the largest slope. "
        f"Printed is r ε_r / C, {float(printed):.2g} off: z depends on C, so paths shorter than v′ lose weight.",
    )


def judge_scaling(readings: Sequence[Measurement]) -> Judgement:
    """A global factor on the weights of random networks."""
    shares = stacked(readings, "mean", "spectra", scaling="none") / 10
    low, high = (float(column.mean()) for column in (shares[:, 0], shares[:, -1]))
    sentence = (
        "Smallest rise of the mean depth, over the blocks, from one common factor of all weights to the next, in each "
        f"network; over all factors it rises from {low:.3f} to {high:.3f}."
    )
    return decide(over_seeds(shares.diff(dim=1).min(1).values), Band(0.0, math.inf), sentence)


def judge_batch_norm(readings: Sequence[Measurement]) -> Judgement:
    """A global factor on batch-norm scales."""
    means = stacked(readings, "mean", "spectra", scaling="centred")
    ratios = stacked(readings, "depth_ratio", "spectra", scaling="centred")[:, 0]
    predicted = path_moments(11, 3 * ratios).mean - path_moments(11, ratios).mean
    moved = over_seeds((means[:, 1] - means[:, 0]) / predicted)
    return decide_correction(
        (moved, Band.around(1.0, 0.5)),
        (moved, Band.around(0.0, 0.01)),
        "Rise of the mean depth when all scales λ are multiplied by 3, over the rise that 3β would give. Each σ scales "
        "with its input, so a common factor changes nothing; only ratios of scales count.",
    )


def _at_most(distance: float) -> Band:
    return Band(-math.inf, distance, distance)


def _lengths(readings: Sequence[Measurement], branch: str) -> Tensor:
    """Mean path length over depth of each network, lengths counted from 1 as in the paper."""
    found = chosen(readings, "spectra", branch=branch, scaling="none")
    return torch.stack([(1 + reading["mean"][0]) / (1 + reading.setting("blocks")) for reading in found])


def _histogram(beta: float) -> tuple[Claim, ...]:
    panel = "abc"[RATIOS.index(beta)]
    side = "deeper" if beta > 1 else "shallower"
    return (
        Claim("formula", "The bars are ε_r = C(p-1, r-1) β^r / z.", "Eq. 16", "C(p-1, r-1) β^r / z", judge_formula),
        Claim(
            "peak",
            "The largest weight is at r = βp/(1+β).",
            f"Figure 1{panel}, Theorem 1",
            f"{100 * beta / (1 + beta):.1f} for β = {beta:g}, p = 100",
            judge_peak,
        ),
        Claim(
            "side",
            f"The ensemble is {side} than half the depth.",
            f"Figure 1{panel}, Section 4",
            "> 0.5" if beta > 1 else "< 0.5",
            partial(judge_side, deep=beta > 1),
        ),
        Claim(
            "narrow",
            "The weights are concentrated in a narrow band near the largest.",
            f"Figure 1{panel}, Section 3",
            f"at most {NARROW:g} of the lengths",
            judge_narrow,
        ),
    )


FIG1A, FIG1B, FIG1C = (_histogram(beta) for beta in RATIOS)

THM1 = (
    Claim("limit", "argmax ε_r / p → β/(1+β).", "Theorem 1, Eq. 17", "0", judge_limit),
    Claim("proof", "The peak is that of C(p, r) β^r.", "Proof of Theorem 1, Eq. 35", "never missed", judge_proof),
    Claim(
        "initialisation",
        "At initialisation the largest weight is at less than half the depth.",
        "Section 3, after Theorem 2",
        "< 0.5",
        judge_initial,
    ),
)

THM2 = (
    Claim("concentration", "Σ ε_r² over any band around βp/(1+β) → 1.", "Theorem 2, Eq. 18", "1", judge_concentration),
    Claim("speed", "The rest vanishes as the depth grows.", "Proof of Theorem 2, Eq. 36", "→ 0", judge_speed),
    Claim("legendre", "z² = (1-β²)^p P_p((1+β²)/(1-β²)).", "Eq. 37", "equal", judge_legendre),
    Claim(
        "coherent",
        "Path lengths of residual networks R(Wx) are distributed like ε².",
        "Section 3, after Theorem 2",
        "total variation 0",
        judge_coherent,
    ),
    Claim(
        "zero_mean",
        "Path lengths of residual networks are distributed like ε², whatever the branches.",
        "Section 3, after Theorem 2",
        "total variation 0",
        judge_incoherent,
    ),
)

LEMMA4 = (
    Claim("any_depth", "Every length is the peak for some scale C.", "Lemma 4", "all lengths", judge_any_depth),
    Claim("derivative", "∂ε_r/∂C = r ε_r / C.", "Section 4, before Eq. 19", "equal", judge_derivative),
    Claim(
        "scaling",
        "A global scaling of the weights changes a shallow ensemble to a deep one.",
        "Section 4, after Lemma 4",
        "depth rises with C",
        judge_scaling,
    ),
    Claim(
        "batch_norm",
        "With batch normalisation, C is directly embodied as the scale λ.",
        "Section 4, claim 3",
        "depth rises with λ as with C",
        judge_batch_norm,
    ),
)
