"""Theorems 1 and 2: where the path weights peak and how they concentrate, in closed form and in random networks."""

import math
from dataclasses import replace
from fractions import Fraction
from itertools import product
from typing import Literal

import torch
from scipy.special import eval_legendre
from torch import Tensor

from skiplens.base.settings import Settings, option
from skiplens.graph.dissect import dissect
from skiplens.papers import statistics
from skiplens.papers.littwin2016_ensembles import common
from skiplens.papers.littwin2016_ensembles.common import RATIOS, REPLICATES, SIZES, once, random_network
from skiplens.papers.littwin2016_ensembles.fig1abc import ROUNDING, band_around_peak, exact_energy_outside, exact_peaks
from skiplens.papers.statistics import Band, Readings, chosen, decide, exactly, over_seeds, raw_tables, stacked
from skiplens.papers.study import Claim, Item, Judgement, Preset, claim
from skiplens.paths.bands import band_rate, limit_fraction, log_energy_outside
from skiplens.paths.laws import fit_named_law
from skiplens.paths.spectrum import measure
from skiplens.paths.weights import log_path_weights, peak_lengths
from skiplens.plots.figure import Figure, Line, colour, numbers
from skiplens.sweeps.run import Run
from skiplens.zoo.littwin2016 import BatchScale

COHERENT, INCOHERENT = (Band(-math.inf, distance, distance) for distance in (0.06, 0.04))
"""Largest total variation between a measured spectrum and the law it follows."""

MARGIN = Fraction(1, 5)  # the band of theorem 2 that is looked at: lengths within a fifth of the peak
LARGEST: dict[Preset, int] = {"smoke": 12, "laptop": 40, "paper": 60}  # depths up to which formulas are compared


class Peaks(Settings):
    """The most weighted length against the depth (theorem 1)."""

    depth_ratio: float = option(0.5, "β")
    depths: tuple[int, ...] = option((10, 30, 100, 300, 1000, 10_000, 100_000), "layers")


class PeakFormulas(Settings):
    """Formulas for the most weighted length at all small depths and simple depth ratios (theorem 1)."""

    largest: int = option(40, "depths and both terms of the ratio go up to this")


class Tails(Settings):
    """The energy far from the peak against the depth (theorem 2)."""

    depth_ratio: float = option(0.5, "β")
    depths: tuple[int, ...] = option((100, 200, 500, 1000, 2000, 5000, 10_000, 100_000), "layers")
    summed_up_to: int = option(1000, "largest depth at which whole numbers are added up too")


class Normaliser(Settings):
    """The squared normaliser and its Legendre forms (equation 37)."""

    depth: int = option(5, "layers")
    depth_ratio: float = option(0.3, "β")


class Spectra(statistics.ReplicateSettings):
    """Path spectra of a random network whose weights, or batch-norm scales, are multiplied (theorems 1, 2, lemma 4)."""

    branch: Literal["relu", "two_layer"] = option("relu", "R(Wx) or V R(Wx)")
    scaling: Literal["none", "centred"] = option("none", "with or without batch-norm-like scales")
    blocks: int = option(20, "residual blocks")
    width: int = option(400, "units of a layer and features of an input")
    samples: int = option(32, "inputs")
    factors: tuple[float, ...] = option((1.0,), "of all weights or, with batch norm, of all scales")


def peaks(settings: Peaks) -> dict[str, Tensor]:
    """Where the largest of all weights lies, and how far that is from βp/(1+β)."""
    found = [int(log_path_weights(depth, settings.depth_ratio).argmax()) + 1 for depth in settings.depths]
    depths, fraction = torch.tensor(settings.depths), limit_fraction(settings.depth_ratio)
    peak = torch.tensor(found, dtype=torch.float64)
    return {"depth": depths, "peak": peak, "share_of_depth": peak / depths, "lengths_off": peak - depths * fraction}


def peak_formulas(settings: PeakFormulas) -> dict[str, Tensor]:
    """How often ⌊t⌋ + 1 (or the tie {t, t+1}), t = βp/(1+β), and the proofs' binomials miss the peak."""
    numbers = range(1, settings.largest + 1)
    ratios = sorted({Fraction(a, b) for a, b in product(numbers, numbers)})
    right = {(depth, ratio): exact_peaks(depth, ratio) for depth in numbers for ratio in ratios}
    whole = [case for case in right if (case[0] * case[1] / (1 + case[1])).denominator == 1]
    counts = {
        "cases": len(right),
        "ties": sum(len(found) > 1 for found in right.values()),
        "whole_without_tie": sum(len(right[case]) == 1 for case in whole),
        "missed": sum(peak_lengths(*case) != found for case, found in right.items()),
        "missed_by_proof": sum(exact_peaks(*case, top=0) != found for case, found in right.items()),
    }
    return {name: torch.tensor(count) for name, count in counts.items()}


def tails(settings: Tails) -> dict[str, Tensor]:
    """The log of the energy outside the band, fast and (where that is feasible) in whole numbers, and its rate."""
    ratio = Fraction(str(settings.depth_ratio))
    bands = {depth: band_around_peak(depth, ratio, MARGIN) for depth in settings.depths}
    logs = [float(log_energy_outside(depth, settings.depth_ratio, *band)) for depth, band in bands.items()]
    summed = [
        math.log(exact_energy_outside(depth, ratio, *band)) if depth <= settings.summed_up_to else math.nan
        for depth, band in bands.items()
    ]
    a = float(ratio / (1 + ratio))
    rate = band_rate(settings.depth_ratio, float(1 - MARGIN) * a, float(1 + MARGIN) * a)
    return {
        "depth": torch.tensor(settings.depths),
        "first": torch.tensor([first for first, _ in bands.values()]),
        "last": torch.tensor([last for _, last in bands.values()]),
        "log_outside": torch.tensor(logs, dtype=torch.float64),
        "exact_log_outside": torch.tensor(summed, dtype=torch.float64),
        "limiting_rate": rate,
    }


def normaliser(settings: Normaliser) -> dict[str, Tensor]:
    """Squared normalisers added up term by term, and in closed form: as printed, and corrected."""
    p, beta = settings.depth, settings.depth_ratio
    x = (1 + beta**2) / (1 - beta**2)
    values = {
        "proof_sum": math.fsum((math.comb(p, r) * beta**r) ** 2 for r in range(1, p + 1)),
        "printed": (1 - beta**2) ** p * eval_legendre(p, x),
        "sum": math.fsum((math.comb(p - 1, r - 1) * beta**r) ** 2 for r in range(1, p + 1)),
        "corrected": beta**2 * (1 - beta**2) ** (p - 1) * eval_legendre(p - 1, x),
    }
    return {name: torch.tensor(float(value), dtype=torch.float64) for name, value in values.items()}


def spectra(settings: Spectra) -> dict[str, Tensor]:
    """Energies of the last layer's units by branches passed, one row a factor, and how far two laws are from them."""
    network, inputs = random_network(settings, settings.blocks + 1, branch=settings.branch, scaling=settings.scaling)
    taken_apart = dissect(network, inputs)
    scaled = [
        parameter
        for module in network.modules()
        for parameter in module.parameters(recurse=False)
        if isinstance(module, BatchScale) == (settings.scaling != "none")
    ]
    unscaled, energies = [parameter.detach().clone() for parameter in scaled], []
    for factor in settings.factors:
        with torch.no_grad():
            for parameter, value in zip(scaled, unscaled, strict=True):
                parameter.copy_(factor * value)
            energies.append(measure(taken_apart, inputs).energy)
    energy = torch.stack(energies)
    shares = energy / energy.sum(1, keepdim=True)
    squared, plain = ([fit_named_law(row, name) for row in shares] for name in ("squared_binomial", "binomial"))
    return {
        "factor": torch.tensor(settings.factors, dtype=torch.float64),
        "mean": shares @ torch.arange(shares.shape[1], dtype=torch.float64),
        "peak": shares.argmax(1),
        "depth_ratio": torch.tensor([fit.depth_ratio for fit in squared], dtype=torch.float64),
        "squared_binomial_distance": torch.tensor([fit.distance for fit in squared], dtype=torch.float64),
        "binomial_distance": torch.tensor([fit.distance for fit in plain], dtype=torch.float64),
        "share": shares,
    }


def thm1_runs(preset: Preset, seed: int) -> list[Run]:
    """Peaks against the depth, formulas for them, and spectra of random networks."""
    by_ratio = [once(peaks, Peaks(depth_ratio=ratio)) for ratio in (*RATIOS[:2], 1.0, RATIOS[2], 5.0)]
    formulas = once(peak_formulas, PeakFormulas(largest=LARGEST[preset]))
    return [*by_ratio, formulas, *_spectra_runs(preset, seed, Spectra())]


def thm2_runs(preset: Preset, seed: int) -> list[Run]:
    """Tails against the depth, the normaliser, and spectra of random networks with two kinds of branch."""
    return [
        *(once(tails, Tails(depth_ratio=ratio)) for ratio in RATIOS),
        once(normaliser, Normaliser()),
        *_spectra_runs(preset, seed, Spectra()),
        *_spectra_runs(preset, seed, Spectra(branch="two_layer")),
    ]


def _spectra_runs(preset: Preset, seed: int, base: Spectra) -> list[Run]:
    sizes = SIZES[preset]
    return statistics.replicated(spectra, replace(base, width=sizes.width), sizes.replicates, seed)


def judge_limit(readings: Readings) -> Judgement:
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


@claim("Proof of Theorem 1, Eq. 35", "never missed")
def _proof(readings: Readings) -> Judgement:
    """The peak is that of C(p, r) β^r."""
    (found,) = chosen(readings, "peak_formulas")
    cases = int(found["cases"])
    wrong, right = (float(found[name]) / cases for name in ("missed_by_proof", "missed"))
    return statistics.decide_correction(
        (exactly(wrong), Band.around(0.0, 0.0)),
        (exactly(right), Band.around(0.0, 0.0)),
        f"Share of {cases} cases (depth and terms of β up to {found.setting('largest')}) in which the peak is missed. "
        f"The proofs take C(p, r), which misses {wrong:.0%}; with C(p-1, r-1) it is ⌊t⌋+1 or {{t, t+1}}, t = βp/(1+β).",
    )


@claim("Section 3, after Theorem 2", "< 0.5")
def _initialisation(readings: Readings) -> Judgement:
    """At initialisation the largest weight is at less than half the depth."""
    found = chosen(readings, "spectra", branch="relu", scaling="none")
    shares = [(1 + reading["mean"][0]) / (1 + reading.setting("blocks")) for reading in found]
    sentence = "Mean path length over depth, random networks R(Wx) with C = 1/√n; β = ρ = 1/2 would give 0.33."
    return decide(over_seeds(shares), Band(-math.inf, 0.5), sentence)


@claim("Theorem 2, Eq. 18", "1")
def _concentration(readings: Readings) -> Judgement:
    """Σ ε_r² over any band around βp/(1+β) → 1."""
    found = chosen(readings, "tails")
    inside = [-math.expm1(float(reading["log_outside"][-1])) for reading in found]
    shallow = [-math.expm1(float(reading["log_outside"][0])) for reading in found]
    sentence = (
        f"Σε² within a fifth of the peak at p = {int(found[0]['depth'][-1])}, three ratios. At p = 100 the same band "
        f"holds {', '.join(f'{value:.3f}' for value in shallow)}."
    )
    return decide(exactly(inside), Band.around(1.0, ROUNDING), sentence)


@claim("Proof of Theorem 2, Eq. 36", "→ 0")
def _speed(readings: Readings) -> Judgement:
    """The rest vanishes as the depth grows."""
    ratios = []
    for reading in chosen(readings, "tails"):
        depth, logs = reading["depth"].double(), reading["log_outside"]
        ratios.append(-(logs[-1] - logs[-2]) / (depth[-1] - depth[-2]) / reading["limiting_rate"])
    sentence = (
        "Rate at which the energy outside vanishes between the two largest depths, over 2 min KL(α‖a), the rate that "
        "Stirling's formula gives for a = β/(1+β) and the ends α of the band; the paper says only that it vanishes."
    )
    return decide(exactly(torch.stack(ratios)), Band.around(1.0, 0.02), sentence)


@claim("Eq. 37", "equal")
def _legendre(readings: Readings) -> Judgement:
    """z² = (1-β²)^p P_p((1+β²)/(1-β²))."""
    (found,) = chosen(readings, "normaliser")
    return statistics.decide_correction(
        (exactly(found["printed"] / found["proof_sum"] - 1), Band.around(0.0, ROUNDING)),
        (exactly(found["corrected"] / found["sum"] - 1), Band.around(0.0, ROUNDING)),
        f"Relative deviation from the sum at p = 5, β = 0.3. Printed: {float(found['printed']):.4f} for "
        f"{float(found['proof_sum']):.4f}, the term r = 0 too many. Right: z² = β² (1-β²)^(p-1) P_(p-1).",
    )


@claim("Section 3, after Theorem 2", "total variation 0")
def _coherent(readings: Readings) -> Judgement:
    """Path lengths of residual networks R(Wx) are distributed like ε²."""
    found = stacked(readings, "squared_binomial_distance", "spectra", branch="relu", scaling="none")[:, 0]
    sentence = "Total variation between the path spectrum of random networks R(Wx) and the nearest ε²(β)."
    return decide(over_seeds(found), COHERENT, sentence)


@claim("Section 3, after Theorem 2", "total variation 0")
def _zero_mean(readings: Readings) -> Judgement:
    """Path lengths of residual networks are distributed like ε², whatever the branches."""
    squared, plain = (
        stacked(readings, f"{name}_distance", "spectra", branch="two_layer")[:, 0]
        for name in ("squared_binomial", "binomial")
    )
    return statistics.decide_correction(
        (over_seeds(squared), COHERENT),
        (over_seeds(plain), INCOHERENT),
        "Total variation between the path spectrum of random networks V R(Wx) and the nearest binomial law: branches "
        f"of mean zero do not add in phase. The nearest ε²(β) is {float(squared.mean()):.2f} away.",
    )


_LIMIT = Claim("limit", "argmax ε_r / p → β/(1+β).", "Theorem 1, Eq. 17", "0", judge_limit)
THM1 = (_LIMIT, _proof, _initialisation)
THM2 = (_concentration, _speed, _legendre, _coherent, _zero_mean)


def draw_thm1(readings: Readings) -> tuple[Figure, ...]:
    """The peak over the depth against the depth, and measured spectra."""
    marks: list[Line] = []
    for index, reading in enumerate(chosen(readings, "peaks")):
        beta = reading.setting("depth_ratio")
        shares = numbers(reading["share_of_depth"])
        marks.append(Line(numbers(reading["depth"]), shares, f"β = {beta:g}", colour=colour(index)))
        limit = float(limit_fraction(beta))
        ends = numbers([reading["depth"][0], reading["depth"][-1]])
        marks.append(Line(ends, (limit, limit), dashed=True, colour=colour(index)))
    words = ("peak", "Theorem 1: the most weighted length over the depth")
    caption = "Each line runs into β/(1+β) (dashed), from which it is never farther than one length."
    return (
        statistics.figure(words, caption, ("depth p", "argmax ε_r / p"), marks, log="x"),
        _spectrum(readings, "relu", "R(Wx)"),
    )


def draw_thm2(readings: Readings) -> tuple[Figure, ...]:
    """The energy outside the band against the depth, and measured spectra with both laws."""
    marks: list[Line] = []
    for index, reading in enumerate(chosen(readings, "tails")):
        depth, decades = reading["depth"].double(), -reading["log_outside"] / math.log(10)
        name = f"β = {reading.setting('depth_ratio'):g}"
        marks.append(Line(numbers(depth), numbers(decades), name, colour=colour(index)))
        rate = float(reading["limiting_rate"]) / math.log(10)
        marks.append(Line(numbers(depth), numbers(rate * depth), dashed=True, colour=colour(index)))
    words = ("tails", "Theorem 2: energy outside ±20 % of the peak")
    caption = (
        "How many powers of ten the energy outside the band has fallen: linear in the depth, at the rate "
        "2 min KL (dashed). At p = 100 and β = 0.1 half of the energy is still outside."
    )
    return (
        statistics.figure(words, caption, ("depth p", "-log10 of the energy outside"), marks, log="xy"),
        _spectrum(readings, "relu", "R(Wx)"),
        _spectrum(readings, "two_layer", "V R(Wx)"),
    )


def _spectrum(readings: Readings, branch: str, name: str) -> Figure:
    shares = stacked(readings, "share", "spectra", branch=branch)[:, 0]
    lengths = range(1, shares.shape[1] + 1)
    fits = {
        "relu": "it fits branches with a positive mean, which add in phase.",
        "two_layer": "branches with mean zero follow the binomial law, with twice the variance.",
    }
    laws = []
    for law, title in (("squared_binomial", "squared law ε²"), ("binomial", "binomial law")):
        fit = fit_named_law(shares.mean(0), law)
        label = f"{title}, β = {fit.depth_ratio:.2f}"
        laws.append(Line(numbers(lengths), numbers(fit.energies), label, dashed=law == "binomial"))
    return statistics.figure(
        (f"spectrum_{branch}", f"Path spectrum of random networks, branches {name}, {shares.shape[1] - 1} blocks"),
        f"Points are means over networks with standard errors. The squared law is the paper's: {fits[branch]}",
        ("path length", "share of the energy"),
        (statistics.mean_points(lengths, shares, "random networks"), *laws),
    )


MIXED = (
    common.CLOSED_FORM,
    "The paper measures no spectra of networks. Here they are those of the last layer's units of random networks, 20 "
    "blocks, Gaussian inputs, weights of variance 1/inputs.",
    REPLICATES,
)
"""Deviations of items with closed forms and random networks."""

ITEMS = (
    Item("thm1", "where the peak goes", thm1_runs, THM1, draw_thm1, raw_tables, MIXED),
    Item("thm2", "concentration and its speed", thm2_runs, THM2, draw_thm2, raw_tables, MIXED),
)
