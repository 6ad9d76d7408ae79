"""Lemma 4: any path length can be made the peak by scaling, in closed form; what scaling does to random networks."""

from dataclasses import replace
from fractions import Fraction

import torch
from torch import Tensor

from skiplens.base.settings import Settings, option
from skiplens.papers import statistics
from skiplens.papers.littwin2016_ensembles.common import DEPTH, POSITIVE, SIZES, once
from skiplens.papers.littwin2016_ensembles.fig1abc import exact_peaks, exact_weights
from skiplens.papers.littwin2016_ensembles.thm1_thm2 import MIXED, Spectra, spectra
from skiplens.papers.statistics import Band, Readings, chosen, decide, exactly, over_seeds, raw_tables, stacked
from skiplens.papers.study import Item, Judgement, Preset, claim
from skiplens.paths import weights
from skiplens.paths.weights import depth_ratio_interval, path_moments, path_weight_slopes, path_weights
from skiplens.plots.figure import Band as figure_Band
from skiplens.plots.figure import Figure, Line, numbers
from skiplens.sweeps.run import Run

FACTORS = (0.05, 0.2, 0.5, 1.0, 2.0, 5.0, 20.0)  # common factors of the weights of random networks (lemma 4)


class Reach(Settings):
    """A depth ratio for every wanted peak (lemma 4)."""

    depth: int = option(DEPTH, "layers")


class Slopes(Settings):
    """How the path weights move with the weight scale (equation 19)."""

    depth: int = option(DEPTH, "layers")
    depth_ratio: float = option(0.5, "β")


def reach(settings: Reach) -> dict[str, Tensor]:
    """For every wanted length the ratio that makes it the peak, the peak it makes, and the interval of such ratios."""
    wanted = list(range(1, settings.depth + 1))
    ratios = [weights.depth_ratio_for_peak(settings.depth, k) for k in wanted]
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


def lemma4_runs(preset: Preset, seed: int) -> list[Run]:
    """A ratio for every peak, and random networks whose weights or batch-norm scales are multiplied."""
    count, base = SIZES[preset].trainings, Spectra(blocks=10, width=100, factors=FACTORS)
    scaled = replace(base, scaling="centred", factors=(1.0, 3.0))
    return [
        once(reach, Reach()),
        once(slopes, Slopes()),
        *statistics.replicated(spectra, base, count, seed),
        *statistics.replicated(spectra, scaled, count, seed),
    ]


@claim("Lemma 4", "all lengths")
def _any_depth(readings: Readings) -> Judgement:
    """Every length is the peak for some scale C."""
    (found,) = chosen(readings, "reach")
    missed = ((found["peak"] != found["wanted"]) | (found["tied"] > 0)).double().mean()
    sentence = (
        f"Share of the lengths 1..{found.setting('depth')} that are not the only peak at a β inside "
        "(k-1)/(p-k+1) < β < k/(p-k); peaks are found by comparing whole numbers."
    )
    return decide(exactly(missed), Band.around(0.0, 0.0), sentence)


@claim("Section 4, before Eq. 19", "equal")
def _derivative(readings: Readings) -> Judgement:
    """∂ε_r/∂C = r ε_r / C."""
    (found,) = chosen(readings, "slopes")
    printed, corrected = (
        (found[name] - found["difference"]).abs().max() / found["difference"].abs().max()
        for name in ("printed", "corrected")
    )
    band = Band.around(0.0, 1e-6)
    return statistics.decide_correction(
        (exactly(printed), band),
        (exactly(corrected), band),
        "Largest deviation of (r - v′) ε_r / C from differences of whole-number weights, over the largest slope. "
        f"Printed is r ε_r / C, {float(printed):.2g} off: z depends on C, so paths shorter than v′ lose weight.",
    )


@claim("Section 4, after Lemma 4", "depth rises with C")
def _scaling(readings: Readings) -> Judgement:
    """A global scaling of the weights changes a shallow ensemble to a deep one."""
    shares = stacked(readings, "mean", "spectra", scaling="none") / 10
    low, high = (float(column.mean()) for column in (shares[:, 0], shares[:, -1]))
    sentence = (
        "Smallest rise of the mean depth, over the blocks, from one common factor of all weights to the next, in each "
        f"network; over all factors it rises from {low:.3f} to {high:.3f}."
    )
    return decide(over_seeds(shares.diff(dim=1).min(1).values), POSITIVE, sentence)


@claim("Section 4, claim 3", "depth rises with λ as with C")
def _batch_norm(readings: Readings) -> Judgement:
    """With batch normalisation, C is directly embodied as the scale λ."""
    means = stacked(readings, "mean", "spectra", scaling="centred")
    ratios = stacked(readings, "depth_ratio", "spectra", scaling="centred")[:, 0]
    predicted = path_moments(11, 3 * ratios).mean - path_moments(11, ratios).mean
    moved = over_seeds((means[:, 1] - means[:, 0]) / predicted)
    return statistics.decide_correction(
        (moved, Band.around(1.0, 0.5)),
        (moved, Band.around(0.0, 0.01)),
        "Rise of the mean depth when all scales λ are multiplied by 3, over the rise that 3β would give. Each σ scales "
        "with its input, so a common factor changes nothing; only ratios of scales count.",
    )


LEMMA4 = (_any_depth, _derivative, _scaling, _batch_norm)


def draw_lemma4(readings: Readings) -> tuple[Figure, ...]:
    """The ratio that makes each length the peak, and the depth of networks against a common factor."""
    (reading,) = chosen(readings, "reach")
    inner = slice(1, -1)
    wanted = numbers(reading["wanted"][inner])
    low, high = (numbers(reading[name][inner]) for name in ("lowest_ratio", "highest_ratio"))
    interval = statistics.figure(
        ("reach", "Lemma 4: the scale that makes a length the peak, p = 100"),
        "Any length is the peak for the ratios between (k-1)/(p-k+1) and k/(p-k). C = β √Λ/(ρn).",
        ("wanted length k", "β"),
        (
            figure_Band(wanted, low, high, "all ratios with this peak"),
            Line(wanted, numbers(reading["depth_ratio"][inner]), "their geometric mean"),
        ),
        log="y",
    )
    marks = []
    for scaling, name in (("none", "of the weights"), ("centred", "of batch-norm scales")):
        factors, depths = (stacked(readings, array, "spectra", scaling=scaling) for array in ("factor", "mean"))
        marks.append(statistics.mean_points(factors[0], depths, name))
    words = ("scaling", "Lemma 4 measured: a common factor, 10 blocks R(Wx)")
    caption = (
        "Random networks, means with standard errors. A factor of all weights moves the depth from 0 to 10; a "
        "factor of all batch-norm scales does not move it at all."
    )
    measured = statistics.figure(words, caption, ("common factor", "mean depth (branches)"), marks, log="x")
    return interval, measured


ITEMS = (Item("lemma4", "any depth by scaling", lemma4_runs, LEMMA4, draw_lemma4, raw_tables, MIXED),)
