"""The runs of each item, for a preset and a seed."""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

from skiplens.papers.images import missing
from skiplens.papers.littwin2016_ensembles import fig1f_thm5, networks, training, two_paths, weights
from skiplens.papers.littwin2016_ensembles.settings import (
    COUNTED_RATIOS,
    FACTORS,
    LOOKS,
    ORDERS,
    RATIOS,
    SIZES,
    Counts,
    Curve,
    Descents,
    FiniteSize,
    Gaussians,
    Images,
    Mixtures,
    Moments,
    Normaliser,
    PeakFormulas,
    Peaks,
    Reach,
    Slopes,
    Spectra,
    Tails,
    TwoPaths,
    Weights,
    once,
    repeated,
)
from skiplens.papers.study import Preset
from skiplens.sweeps.run import Needs, Run


def histogram_runs(preset: Preset, seed: int, depth_ratio: float) -> list[Run]:
    """The path weights of one depth ratio; the same at all presets."""
    return [once(weights.weights, Weights(depth_ratio=depth_ratio))]


fig1a_runs, fig1b_runs, fig1c_runs = (partial(histogram_runs, depth_ratio=ratio) for ratio in RATIOS)


def fig1d_runs(preset: Preset, seed: int) -> list[Run]:
    """Networks with batch-norm scales, in three settings, and random ones."""
    sizes = SIZES[preset]
    base = Moments(width=sizes.width)
    moments = repeated(networks.moments, base, sizes.trainings, seed, scaling=("uncentred", "centred"))
    centred = _gaussians(preset, seed, sizes.varied, "centred")
    return [*_gaussians(preset, seed, sizes.trainings, "literal", "large_head"), *centred, *moments]


def fig1e_runs(preset: Preset, seed: int) -> list[Run]:
    """Networks without, from small and from large weights."""
    return _gaussians(preset, seed, SIZES[preset].trainings, "plain", "plain_large")


def fig1f_runs(preset: Preset, seed: int) -> list[Run]:
    """The curve, exact counts for few spins, and counts in sampled spin glasses with two."""
    sizes = SIZES[preset]
    base = Counts(samples=sizes.counted[0])
    return [
        once(fig1f_thm5.curve, Curve()),
        once(fig1f_thm5.finite_size, FiniteSize()),
        *repeated(fig1f_thm5.counts, base, sizes.replicates, seed, depth_ratio=COUNTED_RATIOS),
    ]


def thm1_runs(preset: Preset, seed: int) -> list[Run]:
    """Peaks against the depth, formulas for them, and spectra of random networks."""
    ratios = (*RATIOS[:2], 1.0, RATIOS[2], 5.0)
    peaks = [once(weights.peaks, Peaks(depth_ratio=ratio)) for ratio in ratios]
    formulas = once(weights.peak_formulas, PeakFormulas(largest=SIZES[preset].largest))
    return [*peaks, formulas, *_spectra(preset, seed, Spectra())]


def thm2_runs(preset: Preset, seed: int) -> list[Run]:
    """Tails against the depth, the normaliser, and spectra of random networks with two kinds of branch."""
    tails = [once(weights.tails, Tails(depth_ratio=ratio)) for ratio in RATIOS]
    spectra = [*_spectra(preset, seed, Spectra()), *_spectra(preset, seed, Spectra(branch="two_layer"))]
    return [*tails, once(weights.normaliser, Normaliser()), *spectra]


def lemma4_runs(preset: Preset, seed: int) -> list[Run]:
    """A ratio for every peak, and random networks whose weights or batch-norm scales are multiplied."""
    count = SIZES[preset].trainings
    base = Spectra(blocks=10, width=100, factors=FACTORS)
    scaled = replace(base, scaling="centred", factors=(1.0, 3.0))
    return [
        once(weights.reach, Reach()),
        once(weights.slopes, Slopes()),
        *repeated(networks.spectra, base, count, seed),
        *repeated(networks.spectra, scaled, count, seed),
    ]


def thm3_runs(preset: Preset, seed: int) -> list[Run]:
    """Steps of layer scales on losses of two pairs of orders."""
    return _two_paths(two_paths.layer_steps, preset, seed)


def thm4_runs(preset: Preset, seed: int) -> list[Run]:
    """Steps of the weight scale on the same kind of losses, and descents."""
    descents = repeated(two_paths.descents, Descents(), SIZES[preset].replicates, seed, depth_ratio=RATIOS)
    return [*_two_paths(two_paths.scale_steps, preset, seed), *descents]


def thm5_runs(preset: Preset, seed: int) -> list[Run]:
    """Mixtures that climb, the network's curve, and counts of critical points with and without shortcuts."""
    sizes = SIZES[preset]
    climbs = repeated(fig1f_thm5.climbs, Mixtures(), sizes.trainings, seed, order=ORDERS)
    base = Counts(depth=4, spins=3, samples=sizes.counted[1])
    counts = repeated(fig1f_thm5.counts, base, sizes.replicates, seed, cost=10, pure=(False, True))
    return [*climbs, once(fig1f_thm5.curve, Curve()), *counts]


def depth_during_training_runs(preset: Preset, seed: int) -> list[Run]:
    """Networks on images."""
    return [run for network in SIZES[preset].networks for run in _images(preset, seed, network)]


def _gaussians(preset: Preset, seed: int, count: int, *names: str) -> list[Run]:
    runs: list[Run] = []
    for name in names:
        looks = _looks(preset, LOOKS[name])
        base = Gaussians.from_json({"setting": name, "looks": looks})
        runs += repeated(training.gaussians, base, count, seed, cost=max(looks))
    return runs


def _images(preset: Preset, seed: int, network: Images) -> list[Run]:
    """None where the data are not at hand; the claims say so."""
    if missing(network.images):
        return []
    shorter = replace(network, looks=_looks(preset, network.looks))
    runs = repeated(training.images, shorter, SIZES[preset].varied, seed, cost=4 * max(shorter.looks))
    return [replace(run, needs=Needs(gpus=1)) for run in runs] if network.device == "cuda" else runs


def _looks(preset: Preset, looks: tuple[int, ...]) -> tuple[int, ...]:
    """All looks, or start, first look and end of a shortened run."""
    shortened = SIZES[preset].shortened
    return looks if shortened == 1 else tuple(look // shortened for look in (*looks[:2], looks[-1]))


def _spectra(preset: Preset, seed: int, base: Spectra) -> list[Run]:
    sizes = SIZES[preset]
    return repeated(networks.spectra, replace(base, width=sizes.width), sizes.replicates, seed)


def _two_paths(measure: Callable[[TwoPaths], Any], preset: Preset, seed: int) -> list[Run]:
    sizes, pairs = SIZES[preset], (TwoPaths(), TwoPaths(short=3, long=5, spins=6))
    return [
        run for pair in pairs for run in repeated(measure, replace(pair, losses=sizes.losses), sizes.replicates, seed)
    ]
