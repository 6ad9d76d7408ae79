"""Figures 1(a-c), theorems 1 and 2 and lemma 4: path weights, in closed form and measured on random networks."""

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from skiplens.kernels.finite_width.simulation import estimate
from skiplens.papers.littwin2016_ensembles.fig1abc import ROUNDING
from skiplens.papers.statistics import Band, chosen, decide, decide_correction, exactly, over_seeds, stacked
from skiplens.papers.study import Claim, Judgement
from skiplens.paths.bands import limit_fraction
from skiplens.paths.laws import fit_named_law
from skiplens.paths.weights import path_moments
from skiplens.plots.figure import Band as figure_Band
from skiplens.plots.figure import Figure, Line, Points, Reference, colour, numbers
from skiplens.readings.reading import Measurement

COHERENT, INCOHERENT = 0.06, 0.04
"""Largest total variation between a measured spectrum and the law it follows."""


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


def draw_thm1(readings: Sequence[Measurement]) -> tuple[Figure, ...]:
    """The peak over the depth against the depth, and measured spectra."""
    marks: list[Line | Reference] = []
    for index, reading in enumerate(chosen(readings, "peaks")):
        beta = reading.setting("depth_ratio")
        shares = numbers(reading["share_of_depth"])
        marks.append(Line(numbers(reading["depth"]), shares, f"β = {beta:g}", colour=colour(index)))
        limit = float(limit_fraction(beta))
        ends = numbers([reading["depth"][0], reading["depth"][-1]])
        marks.append(Line(ends, (limit, limit), dashed=True, colour=colour(index)))
    return (
        Figure(
            name="peak",
            title="Theorem 1: the most weighted length over the depth",
            caption="Each line runs into β/(1+β) (dashed), from which it is never farther than one length.",
            x_label="depth p",
            y_label="argmax ε_r / p",
            marks=tuple(marks),
            x_log=True,
        ),
        _spectrum(readings, "relu", "R(Wx)"),
    )


def draw_thm2(readings: Sequence[Measurement]) -> tuple[Figure, ...]:
    """The energy outside the band against the depth, and measured spectra with both laws."""
    marks: list[Line] = []
    for index, reading in enumerate(chosen(readings, "tails")):
        depth, decades = reading["depth"].double(), -reading["log_outside"] / math.log(10)
        name = f"β = {reading.setting('depth_ratio'):g}"
        marks.append(Line(numbers(depth), numbers(decades), name, colour=colour(index)))
        rate = float(reading["limiting_rate"]) / math.log(10)
        marks.append(Line(numbers(depth), numbers(rate * depth), dashed=True, colour=colour(index)))
    return (
        Figure(
            name="tails",
            title="Theorem 2: energy outside ±20 % of the peak",
            caption="How many powers of ten the energy outside the band has fallen: linear in the depth, at the rate "
            "2 min KL (dashed). At p = 100 and β = 0.1 half of the energy is still outside.",
            x_label="depth p",
            y_label="-log10 of the energy outside",
            marks=tuple(marks),
            x_log=True,
            y_log=True,
        ),
        _spectrum(readings, "relu", "R(Wx)"),
        _spectrum(readings, "two_layer", "V R(Wx)"),
    )


def draw_lemma4(readings: Sequence[Measurement]) -> tuple[Figure, ...]:
    """The ratio that makes each length the peak, and the depth of networks against a common factor."""
    (reading,) = chosen(readings, "reach")
    inner = slice(1, -1)
    wanted = numbers(reading["wanted"][inner])
    low, high = (numbers(reading[name][inner]) for name in ("lowest_ratio", "highest_ratio"))
    return (
        Figure(
            name="reach",
            title="Lemma 4: the scale that makes a length the peak, p = 100",
            caption="Any length is the peak for the ratios between (k-1)/(p-k+1) and k/(p-k). C = β √Λ/(ρn).",
            x_label="wanted length k",
            y_label="β",
            marks=(
                figure_Band(wanted, low, high, "all ratios with this peak"),
                Line(wanted, numbers(reading["depth_ratio"][inner]), "their geometric mean"),
            ),
            y_log=True,
        ),
        _scaled(readings),
    )


def _scaled(readings: Sequence[Measurement]) -> Figure:
    factors = stacked(readings, "factor", "spectra", scaling="none")[0]
    plain = estimate(stacked(readings, "mean", "spectra", scaling="none"))
    normed = estimate(stacked(readings, "mean", "spectra", scaling="centred"))
    places = stacked(readings, "factor", "spectra", scaling="centred")[0]
    return Figure(
        name="scaling",
        title="Lemma 4 measured: a common factor, 10 blocks R(Wx)",
        caption="Random networks, means with standard errors. A factor of all weights moves the depth from 0 to 10; a "
        "factor of all batch-norm scales does not move it at all.",
        x_label="common factor",
        y_label="mean depth (branches)",
        marks=(
            Points(numbers(factors), numbers(plain.value), "of the weights", numbers(plain.standard_error)),
            Points(numbers(places), numbers(normed.value), "of batch-norm scales", numbers(normed.standard_error)),
        ),
        x_log=True,
    )


def _spectrum(readings: Sequence[Measurement], branch: str, name: str) -> Figure:
    shares = stacked(readings, "share", "spectra", branch=branch)[:, 0]
    found, lengths = estimate(shares), numbers(range(1, shares.shape[1] + 1))
    return Figure(
        name=f"spectrum_{branch}",
        title=f"Path spectrum of random networks, branches {name}, {shares.shape[1] - 1} blocks",
        caption=f"Points are means over networks with standard errors. The squared law is the paper's: {_fits(branch)}",
        x_label="path length",
        y_label="share of the energy",
        marks=(
            Points(lengths, numbers(found.value), "random networks", numbers(found.standard_error)),
            _law(found.value, "squared_binomial", "squared law ε²"),
            _law(found.value, "binomial", "binomial law"),
        ),
    )


def _fits(branch: str) -> str:
    if branch == "relu":
        return "it fits branches with a positive mean, which add in phase."
    return "branches with mean zero follow the binomial law, with twice the variance."


def _law(shares: Tensor, name: str, title: str) -> Line:
    fit = fit_named_law(shares, name)
    lengths = torch.arange(1, len(shares) + 1)
    return Line(numbers(lengths), numbers(fit.energies), f"{title}, β = {fit.depth_ratio:.2f}", name == "binomial")
