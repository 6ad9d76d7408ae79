"""The runs of the study: settings of each measurement, and how large they are at each preset.

Measurements without `replicate` and `seed` draw nothing: they are closed forms.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Any, Literal, TypeVar

from skiplens.base.settings import Settings, option
from skiplens.papers.statistics import ReplicateSettings, replicated
from skiplens.papers.study import Preset
from skiplens.sweeps.run import Run

R = TypeVar("R", bound=ReplicateSettings)

S = TypeVar("S", bound=Settings)

DEPTH = 100
"""p of figures 1(a-c) and 1(f)."""


@dataclass(frozen=True)
class Weights(Settings):
    """The path weights of one depth ratio (figures 1a to 1c)."""

    depth: int = option(DEPTH, "layers")
    depth_ratio: float = option(0.5, "β")


@dataclass(frozen=True)
class Peaks(Settings):
    """The most weighted length against the depth (theorem 1)."""

    depth_ratio: float = option(0.5, "β")
    depths: tuple[int, ...] = option((10, 30, 100, 300, 1000, 10_000, 100_000), "layers")


@dataclass(frozen=True)
class PeakFormulas(Settings):
    """Formulas for the most weighted length at all small depths and simple depth ratios (theorem 1)."""

    largest: int = option(40, "depths and both terms of the ratio go up to this")


@dataclass(frozen=True)
class Tails(Settings):
    """The energy far from the peak against the depth (theorem 2)."""

    depth_ratio: float = option(0.5, "β")
    depths: tuple[int, ...] = option((100, 200, 500, 1000, 2000, 5000, 10_000, 100_000), "layers")
    summed_up_to: int = option(1000, "largest depth at which whole numbers are added up too")


@dataclass(frozen=True)
class Normaliser(Settings):
    """The squared normaliser and its Legendre forms (equation 37)."""

    depth: int = option(5, "layers")
    depth_ratio: float = option(0.3, "β")


@dataclass(frozen=True)
class Reach(Settings):
    """A depth ratio for every wanted peak (lemma 4)."""

    depth: int = option(DEPTH, "layers")


@dataclass(frozen=True)
class Slopes(Settings):
    """How the path weights move with the weight scale (equation 19)."""

    depth: int = option(DEPTH, "layers")
    depth_ratio: float = option(0.5, "β")


@dataclass(frozen=True)
class Curve(Settings):
    """The complexity against the depth ratio (figure 1f)."""

    depth: int = option(DEPTH, "layers")
    points: int = option(61, "depth ratios from 1/1000 to 1000, logarithmic")


@dataclass(frozen=True)
class FiniteSize(Settings):
    """The exact mean number of minima of a network's spin glass with finitely many spins (figure 1f)."""

    depth: int = option(DEPTH, "layers")
    depth_ratio: float = option(0.005, "β")
    shortest: int = option(1, "shortest paths: 1 keeps the linear term, 2 drops it")
    spins: tuple[int, ...] = option((5, 10, 20, 40), "numbers of spins")


@dataclass(frozen=True)
class Counts(ReplicateSettings):
    """Critical points found in sampled spin glasses (figure 1f, theorem 5)."""

    depth: int = option(10, "layers, the highest order of interactions")
    depth_ratio: float = option(1.0, "β")
    pure: bool = option(False, "only interactions of the highest order: a network without shortcuts")
    spins: int = option(2, "spins")
    samples: int = option(200, "spin glasses")


@dataclass(frozen=True)
class Spectra(ReplicateSettings):
    """Path spectra of a random network whose weights, or batch-norm scales, are multiplied (theorems 1, 2, lemma 4)."""

    branch: Literal["relu", "two_layer"] = option("relu", "R(Wx) or V R(Wx)")
    scaling: Literal["none", "centred"] = option("none", "with or without batch-norm-like scales")
    blocks: int = option(20, "residual blocks")
    width: int = option(400, "units of a layer and features of an input")
    samples: int = option(32, "inputs")
    factors: tuple[float, ...] = option((1.0,), "of all weights or, with batch norm, of all scales")


@dataclass(frozen=True)
class Moments(ReplicateSettings):
    """The mean square of the units of each layer of a random network with batch-norm scales (section 4.1)."""

    scaling: Literal["uncentred", "centred"] = option("uncentred", "equation 20 as printed, or centred")
    depth: int = option(10, "layers")
    width: int = option(400, "units of a layer and features of an input")
    samples: int = option(400, "inputs")


@dataclass(frozen=True)
class TwoPaths(ReplicateSettings):
    """Gradient steps on spin-glass losses of two orders (theorems 3 and 4)."""

    short: int = option(2, "order of the short paths, m")
    long: int = option(4, "order of the long paths, p")
    spins: int = option(8, "distinct weights, Λ")
    losses: int = option(20, "losses drawn")
    rates: tuple[float, ...] = option((1e-2, 1e-3, 1e-4, 1e-5), "learning rates, μ")


@dataclass(frozen=True)
class Descents(ReplicateSettings):
    """Gradient descent with free weights on a network's spin-glass loss (theorem 4)."""

    depth: int = option(5, "layers, the highest order of interactions")
    depth_ratio: float = option(0.5, "β")
    spins: int = option(10, "distinct weights, Λ")
    learning_rate: float = option(0.002, "size of a step")
    steps: int = option(60, "steps")
    every: int = option(5, "steps between two looks")


@dataclass(frozen=True)
class Mixtures(ReplicateSettings):
    """Complexities of random mixtures, and mixtures that climb to the highest one (theorem 5)."""

    order: int = option(10, "highest order, p")
    draws: int = option(1000, "random mixtures")
    starts: int = option(10, "mixtures that climb")


@dataclass(frozen=True)
class Gaussians(ReplicateSettings):
    """Training to tell 50 Gaussians apart (figures 1d and 1e)."""

    setting: Literal["literal", "centred", "large_head", "plain", "plain_large"] = option("literal", "which network")
    looks: tuple[int, ...] = option((0, 500, 1000, 1500), "steps at which the network is looked at")


@dataclass(frozen=True)
class Images(ReplicateSettings):
    """Training on images, with the path spectrum of the logits (depth_during_training)."""

    network: Literal["conv", "dense"] = option("conv", "conv or dense layers")
    normalised: bool = option(True, "with batch norm; without it branches start small")
    images: str = option("digits", "data set: digits (embedded), mnist or cifar10")
    training: int = option(1700, "images to train on")
    test: int = option(300, "images to look at and to test with")
    side: int | None = option(16, "pixels a side; none: as they are")
    blocks: int = option(6, "residual blocks")
    width: int = option(8, "channels, or units of a dense network")
    looks: tuple[int, ...] = option((0, 50, 100, 200), "steps at which the network is looked at")
    device: Literal["cpu", "cuda"] = option("cpu", "where it is trained")


LOOKS = {
    "literal": (0, 500, 1000, 1500),
    "centred": (0, 200, 500, 1000),
    "large_head": (0, 50, 100, 200),
    "plain": (0, 500, 1000, 2000),
    "plain_large": (0, 50, 200, 1000),
}
"""When each network on Gaussians is looked at; the last look is the end."""

CONV = Images()

DENSE = Images(network="dense", blocks=9, width=64)


@dataclass(frozen=True)
class Sizes:
    """How much of everything a preset does.

    Attributes:
        replicates: Repetitions of what is cheap; confidence intervals are over them.
        trainings: Repetitions of training runs, and of random networks that are measured several times.
        varied: Repetitions of training runs that vary most: centred scales on Gaussians, networks on images.
        counted: Spin glasses whose critical points are counted, with two and with three spins.
        losses: Two-path losses of a replicate.
        width: Of random networks.
        shortened: What the steps of training runs are divided by.
        largest: Depth up to which formulas for the peak are compared.
        networks: Whose depth is followed on images.
    """

    replicates: int
    trainings: int
    varied: int
    counted: tuple[int, int]
    losses: int
    width: int
    shortened: int
    largest: int
    networks: tuple[Images, ...] = (CONV, DENSE, replace(DENSE, normalised=False))


_WHOLE = {"training": 10_000, "test": 1000, "side": None, "looks": (0, 125, 250, 375, 500), "device": "cuda"}

SIZES: dict[Preset, Sizes] = {
    "smoke": Sizes(6, 2, 2, (20, 2), 4, 64, 50, 12),
    "laptop": Sizes(10, 6, 10, (200, 15), 20, 400, 1, 40),
    "paper": Sizes(
        20,
        16,
        20,
        (1000, 100),
        50,
        1000,
        1,
        60,
        tuple(
            Images.from_json({**_WHOLE, "images": images, "network": network, **size, "normalised": normalised})
            for images in ("mnist", "cifar10")
            for network, size in (("conv", {"blocks": 18, "width": 32}), ("dense", {"blocks": 9, "width": 128}))
            for normalised in (True, False)
        ),
    ),
}

RATIOS = (0.1, 0.5, 2.0)
"""β of figures 1(a-c)."""

COUNTED_RATIOS = (0.05, 0.1, 0.5, 1.0, 2.0, 10.0)
"""β at which critical points are counted."""

FACTORS = (0.05, 0.2, 0.5, 1.0, 2.0, 5.0, 20.0)
"""Common factors of the weights of random networks (lemma 4)."""

ORDERS = (3, 4, 5, 7, 10, 20, 50)
"""p of theorem 5. (At p = 2 there is only one mixture.)"""


def once(measure: Callable[[S], Any], settings: S, cost: float = 1.0) -> Run:
    """The run of a measure."""
    return Run(f"{measure.__module__}:{measure.__name__}", settings, cost=cost)


def repeated(
    measure: Callable[[R], Any], base: R, count: int, seed: int, cost: float = 1.0, **axes: Iterable[object]
) -> list[Run]:
    """One run of a measure for each combination of the axes and each replicate."""
    return replicated(f"{measure.__module__}:{measure.__name__}", base, count, seed, lambda settings: cost, **axes)
