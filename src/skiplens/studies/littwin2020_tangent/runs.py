"""The runs of each item, for a preset and a seed."""

import math

from skiplens.studies.littwin2020_tangent.settings import (
    COROLLARY_WIDTH,
    DIAGONALS,
    GROWTH_DEPTHS,
    SCALING_WIDTHS,
    SIZES,
    WIDTHS,
    Architecture,
    Bundle,
    Diagonal,
    Duality,
    Layer,
    repeated,
)
from skiplens.studies.study import Preset
from skiplens.sweeps import Run


def fig2(preset: Preset, seed: int) -> list[Run]:
    """Bundles of residual and dense networks of two widths."""
    return [*_bundles("resnet", preset, seed), *_bundles("densenet", preset, seed)]


def fig4(preset: Preset, seed: int) -> list[Run]:
    """Single matrices at several depths."""
    sizes = SIZES[preset]
    return repeated("layer", Layer(networks=sizes.layers), preset, seed, depth=sizes.layer_depths)


def fig5(preset: Preset, seed: int) -> list[Run]:
    """Three architectures ten times as wide as deep."""
    architectures: tuple[Architecture, ...] = ("resnet", "densenet", "vanilla")
    return [run for architecture in architectures for run in _proportional(architecture, preset, seed)]


def thm1(preset: Preset, seed: int) -> list[Run]:
    """Bundles of residual networks, and diagonals of three of them at one width and of one at several."""
    runs = _bundles("resnet", preset, seed)
    for depth, branch_depth, scale in DIAGONALS:
        base = _diagonal(preset, depth=depth, branch_depth=branch_depth, branch_scale=scale)
        runs += repeated("diagonal", base, preset, seed)
    depth, branch_depth, scale = DIAGONALS[0]
    base = _diagonal(preset, depth=depth, branch_depth=branch_depth, branch_scale=scale)
    return [*runs, *repeated("diagonal", base, preset, seed, width=SCALING_WIDTHS)]


def thm2(preset: Preset, seed: int) -> list[Run]:
    """Bundles and diagonals of dense networks."""
    base = _diagonal(preset, architecture="densenet")
    return [
        *_bundles("densenet", preset, seed),
        *repeated("diagonal", base, preset, seed, width=SCALING_WIDTHS),
    ]


def thm3(preset: Preset, seed: int) -> list[Run]:
    """All matrices of small residual and dense networks."""
    base = Duality(networks=SIZES[preset].duality)
    return repeated("duality", base, preset, seed, architecture=("resnet", "densenet"))


def thm4(preset: Preset, seed: int) -> list[Run]:
    """The same, and residual networks with two other laws of the weights."""
    # Several features: with one, sums of ±1 are often exactly zero, and at zero the theorem's gates are not defined.
    base = Duality(networks=SIZES[preset].duality, features=8)
    return [*thm3(preset, seed), *repeated("duality", base, preset, seed, law=("uniform", "rademacher"))]


def thm5(preset: Preset, seed: int) -> list[Run]:
    """Residual networks of several widths, and of several depths at a fixed branch scale."""
    by_width = repeated("diagonal", _diagonal(preset, depth=10), preset, seed, width=SCALING_WIDTHS)
    return by_width + repeated("diagonal", _diagonal(preset), preset, seed, depth=GROWTH_DEPTHS)


def thm6(preset: Preset, seed: int) -> list[Run]:
    """Dense networks of several widths and of several depths."""
    base = _diagonal(preset, architecture="densenet", depth=10, width=100)
    by_width = repeated("diagonal", base, preset, seed, width=SCALING_WIDTHS)
    return by_width + repeated("diagonal", base, preset, seed, depth=SIZES[preset].depths)


def cor1(preset: Preset, seed: int) -> list[Run]:
    """Residual networks of several depths, with the printed branch scale and with the right one."""
    runs: list[Run] = []
    for depth in SIZES[preset].depths:
        for scale in branch_scales(depth):
            base = _diagonal(preset, depth=depth, branch_scale=scale, width=COROLLARY_WIDTH)
            runs += repeated("diagonal", base, preset, seed)
    return runs


def cor2(preset: Preset, seed: int) -> list[Run]:
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
