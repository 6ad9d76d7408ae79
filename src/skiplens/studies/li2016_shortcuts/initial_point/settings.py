"""Figure 4: settings of its runs, and how large they are at each preset."""

from dataclasses import dataclass

from skiplens.core.settings import option
from skiplens.studies.li2016_shortcuts.digits import Source
from skiplens.studies.li2016_shortcuts.families import FamilyName
from skiplens.studies.replicates import ReplicateSettings, replicated
from skiplens.studies.study import Preset
from skiplens.sweeps import Run

_MEASURE = "skiplens.studies.li2016_shortcuts.initial_point.measure:initial_spectrum"
FAMILY_NAMES: tuple[FamilyName, ...] = ("xavier", "orthogonal", "1-shortcut", "2-shortcut")


@dataclass(frozen=True)
class InitialSpectrum(ReplicateSettings):
    """The Hessian's spectrum of a linear network at its initial weights."""

    family: FamilyName = option("2-shortcut", "initialisation and shortcuts")
    depth: int = option(2, "weight matrices (D)")
    source: Source = option("mnist", "digits: the embedded ones or all of MNIST")


@dataclass(frozen=True)
class Sizes:
    """How large the runs of one preset are."""

    replicates: int
    depths: tuple[int, ...]
    source: Source


SIZES: dict[Preset, Sizes] = {
    "smoke": Sizes(10, (2, 4, 8), "sample"),
    "laptop": Sizes(16, (2, 4, 8, 16), "mnist"),
    "paper": Sizes(20, (2, 4, 8, 16, 32, 64, 96), "mnist"),
}


def runs(preset: Preset, seed: int) -> list[Run]:
    """Four kinds of networks at several depths."""
    sizes = SIZES[preset]
    base = InitialSpectrum(source=sizes.source)
    return replicated(_MEASURE, base, sizes.replicates, seed, _cost, family=FAMILY_NAMES, depth=sizes.depths)


def _cost(settings: InitialSpectrum) -> float:
    """Eigenvalues of a matrix of so many rows."""
    return (settings.depth / 16) ** 3
