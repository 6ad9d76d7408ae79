"""Path weights, peaks and tails: the package's fast formulas beside sums of whole numbers."""

import math
from fractions import Fraction
from itertools import product

import torch
from scipy.special import eval_legendre
from torch import Tensor

from skiplens.papers.littwin2016_ensembles.fig1abc import (
    band_around_peak,
    exact_energy_outside,
    exact_peaks,
    exact_weights,
)
from skiplens.papers.littwin2016_ensembles.settings import (
    Normaliser,
    PeakFormulas,
    Peaks,
    Reach,
    Slopes,
    Tails,
    Weights,
)
from skiplens.paths.bands import band_rate, limit_fraction, log_energy_outside
from skiplens.paths.weights import (
    depth_ratio_for_peak,
    depth_ratio_interval,
    log_path_weights,
    path_weight_slopes,
    path_weights,
    peak_lengths,
)

MARGIN = Fraction(1, 5)
"""The band of theorem 2 that is looked at: lengths within a fifth of the peak."""


def weights(settings: Weights) -> dict[str, Tensor]:
    """ε_r for all lengths, fast and in whole numbers."""
    return {
        "length": torch.arange(1, settings.depth + 1),
        "weight": path_weights(settings.depth, settings.depth_ratio),
        "exact_weight": exact_weights(settings.depth, Fraction(settings.depth_ratio)),
    }


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
    cases = [(depth, ratio) for depth in numbers for ratio in ratios]
    right = [exact_peaks(depth, ratio) for depth, ratio in cases]
    whole = [(depth * ratio / (1 + ratio)).denominator == 1 for depth, ratio in cases]
    return {
        "cases": torch.tensor(len(cases)),
        "ties": torch.tensor(sum(len(found) > 1 for found in right)),
        "whole_without_tie": torch.tensor(
            sum(one and len(found) == 1 for one, found in zip(whole, right, strict=True))
        ),
        "missed": torch.tensor(sum(peak_lengths(*case) != found for case, found in zip(cases, right, strict=True))),
        "missed_by_proof": torch.tensor(
            sum(exact_peaks(*case, top=0) != found for case, found in zip(cases, right, strict=True))
        ),
    }


def tails(settings: Tails) -> dict[str, Tensor]:
    """The log of the energy outside the band, fast and (where that is feasible) in whole numbers, and its rate."""
    ratio = Fraction(str(settings.depth_ratio))
    bands = [band_around_peak(depth, ratio, MARGIN) for depth in settings.depths]
    logs = [
        float(log_energy_outside(depth, settings.depth_ratio, *band))
        for depth, band in zip(settings.depths, bands, strict=True)
    ]
    summed = [
        math.log(exact_energy_outside(depth, ratio, *band)) if depth <= settings.summed_up_to else math.nan
        for depth, band in zip(settings.depths, bands, strict=True)
    ]
    a = float(ratio / (1 + ratio))
    rate = band_rate(settings.depth_ratio, float(1 - MARGIN) * a, float(1 + MARGIN) * a)
    return {
        "depth": torch.tensor(settings.depths),
        "first": torch.tensor([first for first, _ in bands]),
        "last": torch.tensor([last for _, last in bands]),
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


def reach(settings: Reach) -> dict[str, Tensor]:
    """For every wanted length the ratio that makes it the peak, the peak it makes, and the interval of such ratios."""
    wanted = list(range(1, settings.depth + 1))
    ratios = [depth_ratio_for_peak(settings.depth, k) for k in wanted]
    ends = [depth_ratio_interval(settings.depth, k) for k in wanted]
    found = [exact_peaks(settings.depth, Fraction(ratio)) for ratio in ratios]
    return {
        "wanted": torch.tensor(wanted),
        "depth_ratio": torch.tensor(ratios, dtype=torch.float64),
        "peak": torch.tensor([peak[0] for peak in found]),
        "tied": torch.tensor([len(peak) - 1 for peak in found]),
        "lowest_ratio": torch.tensor([low for low, _ in ends], dtype=torch.float64),
        "highest_ratio": torch.tensor([high for _, high in ends], dtype=torch.float64),
    }


def slopes(settings: Slopes) -> dict[str, Tensor]:
    """C dε_r/dC by differences of whole-number weights, as equation 19 has it, and corrected."""
    ratio, step = Fraction(settings.depth_ratio), Fraction(1, 10**5)
    above, below = (exact_weights(settings.depth, ratio * (1 + sign * step)) for sign in (1, -1))
    lengths = torch.arange(1, settings.depth + 1)
    return {
        "length": lengths,
        "difference": (above - below) / float(2 * step),
        "printed": lengths * path_weights(settings.depth, settings.depth_ratio),
        "corrected": path_weight_slopes(settings.depth, settings.depth_ratio),
    }
