"""Figures 7 and 8: the grids of learning rates, and how large they are at each preset."""

from collections.abc import Iterable
from dataclasses import dataclass, replace

from skiplens.core.randomness import Randomness
from skiplens.core.settings import Settings, option
from skiplens.studies.images import needs
from skiplens.studies.li2016_shortcuts.digits import Source
from skiplens.studies.li2016_shortcuts.families import FamilyName
from skiplens.studies.study import Preset
from skiplens.sweeps import Run

_MEASURES = "skiplens.studies.li2016_shortcuts.learning_rates.measure"

LINEAR_FAMILIES: tuple[FamilyName, ...] = ("xavier", "orthogonal", "1-shortcut", "2-shortcut", "3-shortcut")
RECTIFIED_FAMILIES: tuple[FamilyName, ...] = ("xavier", "orthogonal", "2-shortcut")
"""Those with as many ReLUs as each other at every depth."""

_THREES = {4: 6, 8: 12, 16: 18, 32: 33, 64: 66}


def depth_of(family: str, depth: int) -> int:
    """The depth of the networks of `family` that stand beside others of `depth`: units of three do not fill all."""
    return _THREES.get(depth, depth) if family == "3-shortcut" else depth


def exponents(low: float, high: float, step: float) -> tuple[float, ...]:
    """Equally spaced powers of ten."""
    return tuple(low + step * place for place in range(round((high - low) / step) + 1))


@dataclass(frozen=True)
class RateGrid(Settings):
    """Networks of one family and depth, each start trained with every learning rate; one run is one program."""

    family: FamilyName = option("2-shortcut", "shortcuts and initial weights")
    depth: int = option(8, "weight matrices")
    exponents: tuple[float, ...] = option((), "log10 of the learning rates")
    networks: int = option(10, "starts, each with weights of its own")
    epochs: int = option(1000, "updates, each with all samples")
    source: Source = option("mnist", "the embedded digits or all of MNIST")
    samples: int | None = option(None, "the first images only")
    seed: int = option(0, "names every draw")
    gpu: bool = option(False, "train on a GPU")

    def streams(self) -> list[Randomness]:
        """Where the weights of each start come from; the same for every grid of rates, number of epochs and data."""
        stream = Randomness(self.seed).child("learning rates", self.family, self.depth)
        return [stream.child(network) for network in range(self.networks)]


@dataclass(frozen=True)
class LinearGrid(RateGrid):
    """Linear networks (figure 7)."""


@dataclass(frozen=True)
class RectifiedGrid(RateGrid):
    """Networks with a ReLU in the middle of every pair of matrices (figure 8)."""


@dataclass(frozen=True)
class Sizes:
    """How large the grids of a preset are; `linear` and `rectified` are (networks, exponents, depths)."""

    linear: tuple[int, tuple[float, ...], tuple[int, ...]]
    rectified: tuple[int, tuple[float, ...], tuple[int, ...]]
    linear_source: Source = "mnist"
    rectified_source: Source = "sample"  # the first 1,000 digits of MNIST are among the embedded ones
    rectified_samples: int | None = 1000
    rectified_gpu: bool = False


_LINEAR_RATES, _RECTIFIED_RATES = exponents(-4.0, 1.0, 0.25), exponents(-3.0, 1.0, 0.5)

SIZES: dict[Preset, Sizes] = {
    "smoke": Sizes(
        linear=(12, (-3.0, *exponents(-2.0, 0.75, 0.25)), (4, 16)),
        rectified=(8, exponents(-1.0, 0.0, 0.5), (4, 8)),
        linear_source="sample",
        rectified_samples=250,
    ),
    "laptop": Sizes(
        linear=(20, _LINEAR_RATES, (4, 8, 16, 32, 64, 96)), rectified=(8, _RECTIFIED_RATES, (4, 8, 16, 32, 64))
    ),
    "paper": Sizes(
        linear=(40, _LINEAR_RATES, (4, 8, 16, 32, 64, 96)),
        rectified=(10, _RECTIFIED_RATES, (4, 8, 16, 32, 64)),
        rectified_source="mnist",
        rectified_samples=None,
        rectified_gpu=True,
    ),
}


def fig7(preset: Preset, seed: int) -> list[Run]:
    """A grid for each of five families and each depth."""
    sizes = SIZES[preset]
    networks, rates, depths = sizes.linear
    base = LinearGrid(exponents=rates, networks=networks, source=sizes.linear_source, seed=seed)
    return _grids("linear_grid", base, LINEAR_FAMILIES, depths)


def fig8(preset: Preset, seed: int) -> list[Run]:
    """A grid for each of three families and each depth."""
    sizes = SIZES[preset]
    networks, rates, depths = sizes.rectified
    source, samples = sizes.rectified_source, sizes.rectified_samples
    base = RectifiedGrid(exponents=rates, networks=networks, source=source, samples=samples, seed=seed)
    base = replace(base, gpu=sizes.rectified_gpu)
    return _grids("rectified_grid", base, RECTIFIED_FAMILIES, depths)


def _grids(measure: str, base: RateGrid, families: Iterable[FamilyName], depths: Iterable[int]) -> list[Run]:
    settings = [replace(base, family=family, depth=depth_of(family, depth)) for family in families for depth in depths]
    return [Run(f"{_MEASURES}:{measure}", one, needs(base.gpu), _cost(one)) for one in settings]


def _cost(settings: RateGrid) -> float:
    """Proportional to the matrix products; those with samples are as many times larger."""
    products = settings.depth * settings.networks * len(settings.exponents) * settings.epochs
    return products * (20 if isinstance(settings, RectifiedGrid) else 1)
