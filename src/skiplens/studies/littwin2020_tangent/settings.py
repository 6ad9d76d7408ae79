"""The runs of the study: settings of each measurement, and how large they are at each preset."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from skiplens.core.settings import Settings, option
from skiplens.studies.study import Preset
from skiplens.sweeps import Run, grid

Architecture = Literal["resnet", "densenet", "vanilla"]
MEASURES = "skiplens.studies.littwin2020_tangent.measure"


@dataclass(frozen=True)
class Networks(Settings):
    """Random networks of one architecture."""

    architecture: Architecture = option("resnet", "residual, dense or vanilla")
    depth: int = option(5, "blocks or layers")
    width: int = option(50, "units of a layer")
    branch_depth: int = option(2, "matrices of a branch")
    branch_scale: float = option(0.3, "scale of each matrix of a branch")
    networks: int = option(200, "networks drawn")
    replicate: int = option(0, "which repetition")
    seed: int = option(0, "names every draw")


@dataclass(frozen=True)
class Bundle(Networks):
    """Tangent kernels of random networks against the angle between two inputs (figure 2)."""

    branch_scale: float = option(0.5, "scale of each matrix of a branch")
    networks: int = option(100, "networks drawn")
    angles: int = option(20, "angles from 0 to π")
    explicit_weights: bool = option(False, "draw the weight matrices")


@dataclass(frozen=True)
class Diagonal(Networks):
    """The tangent kernel of an input with itself, over random networks (figure 5, theorems 1, 2, 5, 6)."""


@dataclass(frozen=True)
class Layer(Networks):
    """A random matrix's Jacobian norm, and the output of the network reduced to it (figure 4); residual only."""


@dataclass(frozen=True)
class Duality(Networks):
    """Moments of reduced networks, path parts and Jacobians of every matrix (theorems 3 and 4)."""

    depth: int = option(4, "blocks or layers")
    width: int = option(16, "units of a layer")
    branch_scale: float = option(0.5, "scale of each matrix of a branch")
    networks: int = option(20000, "networks drawn")
    law: Literal["gaussian", "uniform", "rademacher", "laplace"] = option("gaussian", "of the weights")
    features: int = option(1, "of the input")


@dataclass(frozen=True)
class Sizes:
    """How much of everything a preset does.

    Attributes:
        replicates: Repetitions; confidence intervals are over them.
        bundle: Networks of a bundle of figure 2.
        diagonals: Networks for a variance.
        layers: Networks for the moments of figure 4.
        duality: Networks for the moments of theorems 3 and 4.
        depths: Of figure 5 and the corollaries.
        layer_depths: Of figure 4.
        explicit_weights: Whether figure 2 draws weight matrices.
    """

    replicates: int
    bundle: int
    diagonals: int
    layers: int
    duality: int
    depths: tuple[int, ...] = (5, 10, 20, 40, 80)
    layer_depths: tuple[int, ...] = (5, 10, 20, 40, 60)
    explicit_weights: bool = False


SIZES: dict[Preset, Sizes] = {
    "smoke": Sizes(10, 20, 200, 100, 500, depths=(5, 10, 20), layer_depths=(5, 10, 20)),
    "laptop": Sizes(20, 100, 400, 4000, 20000),
    "paper": Sizes(50, 100, 200, 4000, 50000, explicit_weights=True),
}

WIDTHS = (50, 500)
"""Of figure 2."""

DIAGONALS = ((5, 2, 0.5), (3, 3, 0.7), (10, 2, 0.3))
"""(depth, branch depth, branch scale) at which equation (25) is checked."""

SCALING_WIDTHS = (50, 100, 200, 400)
"""At which the variance is measured to see how it falls."""

GROWTH_DEPTHS = (10, 20, 40, 60)
"""At which theorem 5's growth with depth is measured, at a fixed branch scale."""

COROLLARY_WIDTH = 100
"""At which corollary 1 compares depths."""


def repeated(measure: str, base: Networks, preset: Preset, seed: int, **axes: Iterable[object]) -> list[Run]:
    """One run for each combination of the axes and each replicate; replicates of one setting are neighbours."""
    combinations = grid(base, **axes, replicate=range(SIZES[preset].replicates), seed=(seed,))
    return [Run(f"{MEASURES}:{measure}", settings, cost=_cost(settings)) for settings in combinations]


def _cost(settings: Networks) -> float:
    """Proportional to the numbers drawn."""
    explicit = isinstance(settings, Duality) or (isinstance(settings, Bundle) and settings.explicit_weights)
    return settings.networks * settings.depth * settings.width ** (2 if explicit else 1)
