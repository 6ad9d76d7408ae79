"""Theorem 2: settings of its runs, and how large they are at each preset."""

import dataclasses
from dataclasses import dataclass
from typing import Any, Literal

from skiplens.core.settings import option
from skiplens.studies.li2016_shortcuts.digits import Source
from skiplens.studies.replicates import ReplicateSettings, replicated
from skiplens.studies.study import Preset
from skiplens.sweeps import Run

_MEASURES = "skiplens.studies.li2016_shortcuts.zero_point.measure"
Activations = Literal["identity", "smooth"]


@dataclass(frozen=True)
class RandomData(ReplicateSettings):
    """Gaussian inputs with random labels, and the network that sees them."""

    units: int = option(3, "residual units (R)")
    branch_depth: int = option(2, "weight matrices of a unit, the shortcut's length (n)")
    width: int = option(3, "features (d)")
    samples: int = option(20, "samples (m)")


@dataclass(frozen=True)
class Structure(RandomData):
    """The Hessian at zero by automatic differentiation, beside the printed one."""

    activations: Activations = option("identity", "smooth: softplus before, SiLU between, tanh after the matrices")


@dataclass(frozen=True)
class Picture(RandomData):
    """The Hessian at zero itself, to be seen."""


@dataclass(frozen=True)
class Derivatives(RandomData):
    """Derivatives of the loss at zero along a random direction."""


@dataclass(frozen=True)
class Biased(RandomData):
    """The network of theorem 1, with biases."""


@dataclass(frozen=True)
class DigitSpectrum(ReplicateSettings):
    """The spectrum at zero of a linear network on digits whose principal components have random signs."""

    depth: int = option(2, "weight matrices (D)")
    branch_depth: int = option(2, "weight matrices of a unit (n)")
    source: Source = option("mnist", "digits: the embedded ones or all of MNIST")


@dataclass(frozen=True)
class NearZero(ReplicateSettings):
    """The true spectrum beside zero of a 2-shortcut network with ReLU between its matrices."""

    depth: int = option(2, "weight matrices (D)")
    samples: int = option(1000, "first digits, whitened by themselves")


@dataclass(frozen=True)
class Sizes:
    """How large the runs of one preset are."""

    replicates: int
    depths: tuple[int, ...]
    source: Source


SIZES: dict[Preset, Sizes] = {
    "smoke": Sizes(10, (2, 4, 8, 16), "sample"),
    "laptop": Sizes(20, (2, 4, 8, 16), "mnist"),
    "paper": Sizes(20, (2, 4, 8, 16, 32, 64), "mnist"),
}
UNITS = (1, 2, 4)
"""At which random data are looked at with automatic differentiation."""

BRANCH_DEPTHS = (1, 2, 3)
RECTIFIED_DEPTHS = (4, 16, 64)
RECTIFIED_REPLICATES = 60
"""More than of the others: networks differ much beside zero, and little work is needed to see it."""


def runs(preset: Preset, seed: int) -> list[Run]:
    """Random data with automatic differentiation, digits with closed forms."""
    sizes = SIZES[preset]
    count = sizes.replicates

    def repeat(measure: str, base: ReplicateSettings, **axes: Any) -> list[Run]:
        return replicated(f"{_MEASURES}:{measure}", base, count, seed, **axes)

    digits = DigitSpectrum(source=sizes.source)
    return [
        *repeat("structure", Structure(), branch_depth=BRANCH_DEPTHS, units=UNITS),
        *repeat("structure", Structure(activations="smooth"), units=UNITS),
        *replicated(f"{_MEASURES}:picture", Picture(), 1, seed, branch_depth=BRANCH_DEPTHS),
        *repeat("derivatives", Derivatives(units=2), branch_depth=(2, 3, 4)),
        *repeat("biased", Biased(), units=UNITS),
        *repeat("digit_spectrum", dataclasses.replace(digits, branch_depth=1), depth=sizes.depths),
        *repeat("digit_spectrum", digits, depth=sizes.depths[:-1]),  # nothing new in the deepest of them
        *replicated(f"{_MEASURES}:near_zero", NearZero(), RECTIFIED_REPLICATES, seed, depth=RECTIFIED_DEPTHS),
    ]
