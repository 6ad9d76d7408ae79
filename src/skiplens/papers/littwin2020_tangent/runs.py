"""The runs of the study: settings of each measurement, and how large they are at each preset."""

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from skiplens.base.settings import Settings, option
from skiplens.papers.study import Preset
from skiplens.sweeps.run import Run
from skiplens.sweeps.sweep import grid

Architecture = Literal["resnet", "densenet", "vanilla"]

MEASURES = "skiplens.papers.littwin2020_tangent.measure"


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


def fig2_runs(preset: Preset, seed: int) -> list[Run]:
    """Bundles of residual and dense networks of two widths."""
    return [*_bundles("resnet", preset, seed), *_bundles("densenet", preset, seed)]


def fig4_runs(preset: Preset, seed: int) -> list[Run]:
    """Single matrices at several depths."""
    sizes = SIZES[preset]
    return repeated("layer", Layer(networks=sizes.layers), preset, seed, depth=sizes.layer_depths)


def fig5_runs(preset: Preset, seed: int) -> list[Run]:
    """Three architectures ten times as wide as deep."""
    architectures: tuple[Architecture, ...] = ("resnet", "densenet", "vanilla")
    return [run for architecture in architectures for run in _proportional(architecture, preset, seed)]


def thm1_runs(preset: Preset, seed: int) -> list[Run]:
    """Bundles of residual networks, and diagonals of three of them at one width and of one at several."""
    runs = _bundles("resnet", preset, seed)
    for depth, branch_depth, scale in DIAGONALS:
        base = _diagonal(preset, depth=depth, branch_depth=branch_depth, branch_scale=scale)
        runs += repeated("diagonal", base, preset, seed)
    depth, branch_depth, scale = DIAGONALS[0]
    base = _diagonal(preset, depth=depth, branch_depth=branch_depth, branch_scale=scale)
    return [*runs, *repeated("diagonal", base, preset, seed, width=SCALING_WIDTHS)]


def thm2_runs(preset: Preset, seed: int) -> list[Run]:
    """Bundles and diagonals of dense networks."""
    base = _diagonal(preset, architecture="densenet")
    return [
        *_bundles("densenet", preset, seed),
        *repeated("diagonal", base, preset, seed, width=SCALING_WIDTHS),
    ]


def thm3_runs(preset: Preset, seed: int) -> list[Run]:
    """All matrices of small residual and dense networks."""
    base = Duality(networks=SIZES[preset].duality)
    return repeated("duality", base, preset, seed, architecture=("resnet", "densenet"))


def thm4_runs(preset: Preset, seed: int) -> list[Run]:
    """The same, and residual networks with two other laws of the weights."""
    # Several features: with one, sums of ±1 are often exactly zero, and at zero the theorem's gates are not defined.
    base = Duality(networks=SIZES[preset].duality, features=8)
    return [*thm3_runs(preset, seed), *repeated("duality", base, preset, seed, law=("uniform", "rademacher"))]


def thm5_runs(preset: Preset, seed: int) -> list[Run]:
    """Residual networks of several widths, and of several depths at a fixed branch scale."""
    by_width = repeated("diagonal", _diagonal(preset, depth=10), preset, seed, width=SCALING_WIDTHS)
    return by_width + repeated("diagonal", _diagonal(preset), preset, seed, depth=GROWTH_DEPTHS)


def thm6_runs(preset: Preset, seed: int) -> list[Run]:
    """Dense networks of several widths and of several depths."""
    base = _diagonal(preset, architecture="densenet", depth=10, width=100)
    by_width = repeated("diagonal", base, preset, seed, width=SCALING_WIDTHS)
    return by_width + repeated("diagonal", base, preset, seed, depth=SIZES[preset].depths)


def cor1_runs(preset: Preset, seed: int) -> list[Run]:
    """Residual networks of several depths, with the printed branch scale and with the right one."""
    runs: list[Run] = []
    for depth in SIZES[preset].depths:
        for scale in branch_scales(depth):
            base = _diagonal(preset, depth=depth, branch_scale=scale, width=COROLLARY_WIDTH)
            runs += repeated("diagonal", base, preset, seed)
    return runs


def cor2_runs(preset: Preset, seed: int) -> list[Run]:
    """Dense networks ten times as wide as deep."""
    return _proportional("densenet", preset, seed)


def branch_scales(depth: int) -> tuple[float, float]:
    """α as corollary 1 prints it, 1/L^m, and as it should be, 1/L^{1/m}; m = 2."""
    return 1 / depth**2, 1 / math.sqrt(depth)


def _bundles(architecture: Architecture, preset: Preset, seed: int) -> list[Run]:
    sizes = SIZES[preset]
    base = Bundle(architecture=architecture, networks=sizes.bundle, explicit_weights=sizes.explicit_weights)
    return repeated("bundle", base, preset, seed, width=WIDTHS)


def _proportional(architecture: Architecture, preset: Preset, seed: int) -> list[Run]:
    runs: list[Run] = []
    for depth in SIZES[preset].depths:
        scale = 0.3 / math.sqrt(depth) if architecture == "resnet" else Diagonal().branch_scale
        base = _diagonal(preset, architecture=architecture, depth=depth, width=10 * depth, branch_scale=scale)
        runs += repeated("diagonal", base, preset, seed)
    return runs


def _diagonal(preset: Preset, **settings: object) -> Diagonal:
    return Diagonal.from_json({"networks": SIZES[preset].diagonals, **settings})
