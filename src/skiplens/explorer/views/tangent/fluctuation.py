"""How much the kernel at equal inputs varies from one random network to the next: exact, at any depth and width."""

from collections.abc import Iterable
from dataclasses import replace
from functools import lru_cache

from skiplens.explorer.views.tangent.architectures import TITLES, Architecture, Setting
from skiplens.explorer.views.tangent.sampling import Sampled
from skiplens.figures import Figure, Line, Points, Reference
from skiplens.figures.figure import Mark, numbers
from skiplens.figures.style import colour
from skiplens.theory.finite_width import KernelMoments, kernel_moments
from skiplens.theory.finite_width.networks import Network

DEPTHS = (1, 2, 4, 7, 12, 20, 35, 60, 100)
WIDTHS = (20, 40, 90, 200, 450, 1000)

_CAPTION = (
    "Variance of the kernel at equal inputs over random networks, divided by its squared mean: 0.01 means that it "
    "varies by 10 % from draw to draw. Small: the network behaves like its infinitely wide limit."
)


@lru_cache(maxsize=4096)
def moments(network: Network, trained: str) -> KernelMoments:
    """Mean and variance of the kernel at equal inputs; a slider that moves asks for most of them again."""
    return kernel_moments(network, trained)


def relative_variance(setting: Setting, architecture: Architecture) -> float:
    """V/(E𝒢)² of an architecture in this setting."""
    return float(moments(setting.network(architecture), setting.trained).relative_variance)


def variance_against_depth(setting: Setting, sampled: Sampled | None = None) -> Figure:
    """Each architecture at this width; the residual one also with the scale that shrinks with depth."""
    settings = [replace(setting, depth=depth) for depth in DEPTHS]
    rule = f"α = {setting.mark:g}·L^(−1/{setting.branch_depth})"
    shrinking = [relative_variance(each.at_marked_scale(), "resnet") for each in settings]
    return Figure(
        name="variance_against_depth",
        title=f"Spread of the kernel against depth, width {setting.width}",
        caption=f"{_CAPTION} The dashed curve shrinks the branches like {rule} as depth grows, and stays low.",
        x_label="depth L",
        y_label="relative variance of the diagonal",
        marks=(
            *_lines(DEPTHS, settings),
            Line(numbers(DEPTHS), numbers(shrinking), "ResNet, α shrinking", dashed=True, colour=colour(0)),
            *_measured(setting.depth, sampled),
            Reference(float(setting.depth), f"depth {setting.depth}", axis="x"),
        ),
        x_log=True,
        y_log=True,
    )


def variance_against_width(setting: Setting, sampled: Sampled | None = None) -> Figure:
    """Each architecture at this depth: all fall like one over the width, from very different heights."""
    return Figure(
        name="variance_against_width",
        title=f"Spread of the kernel against width, depth {setting.depth}",
        caption=f"{_CAPTION} It falls like one over the width once the network is wide enough for its depth.",
        x_label="width n",
        y_label="relative variance of the diagonal",
        marks=(
            *_lines(WIDTHS, [replace(setting, width=width) for width in WIDTHS]),
            *_measured(setting.width, sampled),
            Reference(float(setting.width), f"width {setting.width}", axis="x"),
        ),
        x_log=True,
        y_log=True,
    )


def _lines(places: Iterable[int], settings: list[Setting]) -> list[Line]:
    return [
        Line(numbers(list(places)), numbers([relative_variance(each, architecture) for each in settings]), title)
        for architecture, title in TITLES.items()
    ]


def _measured(place: int, sampled: Sampled | None) -> tuple[Mark, ...]:
    if sampled is None:
        return ()
    value, error = sampled.relative_variance
    return (Points((float(place),), (value,), f"{len(sampled.kernels)} drawn", error=(error,)),)
