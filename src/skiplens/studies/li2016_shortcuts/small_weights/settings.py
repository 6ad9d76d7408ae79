"""Theorem 1: settings of its runs, and how large they are at each preset."""

from dataclasses import dataclass

from skiplens.core.settings import option
from skiplens.studies.replicates import ReplicateSettings, replicated
from skiplens.studies.study import Preset
from skiplens.sweeps import Run

_MEASURES = "skiplens.studies.li2016_shortcuts.small_weights.measure"


@dataclass(frozen=True)
class Points(ReplicateSettings):
    """Random unit vectors, and a different standard basis vector as the label of each."""

    samples: int = option(6, "points to move (m)")
    width: int = option(10, "features (d)")


@dataclass(frozen=True)
class Construction(Points):
    """The network of theorem 1 with a given number of units."""

    units: int = option(125, "residual units (R)")


@dataclass(frozen=True)
class OneStep(Points):
    """A single unit of lemma 1 that moves one of several points."""

    distance: float = option(0.1, "how far the point moves")


@dataclass(frozen=True)
class SharedLabels(Points):
    """Twice as many samples as labels, fitted nearly."""

    samples: int = option(20, "points to move (m)")
    distance: float = option(0.1, "how far surrogate targets may be from the labels")
    units: int = option(500, "residual units (R)")


@dataclass(frozen=True)
class Sizes:
    """How large the runs of one preset are."""

    replicates: int
    units: tuple[int, ...]
    shared_units: int


SIZES: dict[Preset, Sizes] = {
    "smoke": Sizes(12, (125, 250, 500), 500),
    "laptop": Sizes(20, (125, 250, 500, 1000, 2000, 4000), 2000),
    "paper": Sizes(50, (125, 250, 500, 1000, 2000, 4000, 8000, 16000), 8000),
}


def runs(preset: Preset, seed: int) -> list[Run]:
    """Constructions of several depths, single steps, and samples that share labels."""
    sizes = SIZES[preset]
    count = sizes.replicates
    return [
        *replicated(f"{_MEASURES}:construction", Construction(), count, seed, _units, units=sizes.units),
        *replicated(f"{_MEASURES}:one_step", OneStep(), count, seed),
        *replicated(f"{_MEASURES}:shared_labels", SharedLabels(units=sizes.shared_units), count, seed, _units),
    ]


def _units(settings: Construction | SharedLabels) -> float:
    return float(settings.units)
