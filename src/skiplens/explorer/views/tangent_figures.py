"""The three architectures of one setting: as infinitely wide kernels and as finite networks."""

import math
from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Literal

import torch
from torch import Tensor

from skiplens.base.progress import Progress, silent, track
from skiplens.base.randomness import Randomness
from skiplens.explorer.view import Values
from skiplens.kernels.arc_cosine import Correlation
from skiplens.kernels.architectures import DenseNetKernel, InfiniteWidthKernel, ResNetKernel, Trained, VanillaKernel
from skiplens.kernels.finite_width.matrix_free import sample_kernels
from skiplens.kernels.finite_width.moments import KernelMoments, kernel_moments
from skiplens.kernels.finite_width.networks import DenseNet, Network, ResNet, Vanilla
from skiplens.plots.figure import Band, Figure, Line, Mark, Points, Reference, colour, numbers

Architecture = Literal["resnet", "densenet", "vanilla"]

TITLES: dict[Architecture, str] = {"resnet": "ResNet", "densenet": "DenseNet", "vanilla": "vanilla"}
"""Each architecture as people call it, in the order of its colours."""

_DIGITS = 4  # of a computed scale: the moments are exact in its decimals, and few of them make them quick


@dataclass(frozen=True)
class Setting:
    """What is drawn: one depth and width for all architectures, and the branches of the residual one.

    Attributes:
        architecture: The one that numbers and sampled networks are of.
        depth: Residual blocks or layers (L).
        width: Units of every layer of a finite network (n).
        branch_depth: Weight matrices of a branch (m).
        branch_scale: Scale of each of these matrices (α).
        mark: The a of the scale a·L^(−1/m) that is marked.
        trained: Whether the first and the last layer are trained too.
    """

    architecture: Architecture = "resnet"
    depth: int = 20
    width: int = 100
    branch_depth: int = 2
    branch_scale: float = 0.3
    mark: float = 1.0
    trained: Trained = "branches"

    @classmethod
    def of(cls, values: Values) -> "Setting":
        """The setting that the values of the controls describe."""
        found = cls(**{name: values[name] for name in cls.__dataclass_fields__})
        return replace(found, branch_scale=float(found.branch_scale), mark=float(found.mark))

    @property
    def block_gain(self) -> float:
        """The factor α^m by which a branch multiplies the squared signal."""
        return self.branch_scale**self.branch_depth

    @property
    def marked_scale(self) -> float:
        """The scale α = a·L^(−1/m) at this depth."""
        return float(f"{self.mark * self.depth ** (-1 / self.branch_depth):.{_DIGITS}g}")

    def at_marked_scale(self) -> "Setting":
        """The same setting with the marked scale."""
        return replace(self, branch_scale=self.marked_scale)

    def network(self, architecture: Architecture | None = None) -> Network:
        """The finite network of an architecture; of the chosen one if none is named."""
        match architecture or self.architecture:
            case "resnet":
                return ResNet(self.depth, self.width, self.branch_depth, self.branch_scale)
            case "densenet":
                return DenseNet(self.depth, self.width)
            case "vanilla":
                return Vanilla(self.depth, self.width)

    def kernel(self, architecture: Architecture | None = None) -> InfiniteWidthKernel:
        """The infinitely wide network's kernel, relative to equal inputs."""
        match architecture or self.architecture:
            case "resnet":
                return ResNetKernel(
                    self.depth, self.branch_depth, self.branch_scale, trained=self.trained, normalise=True
                )
            case "densenet":
                return DenseNetKernel(self.depth, trained=self.trained, normalise=True)
            case "vanilla":
                return VanillaKernel(self.depth, trained=self.trained, normalise=True)


ANGLES = 65


@lru_cache(maxsize=256)
def relative_kernel(kernel: InfiniteWidthKernel) -> Tensor:
    """The tangent kernel at equal steps of the angle from 0 to π, divided by that of equal inputs.

    Straight from the recursion and from exact angles: a table is worth its time only for many more pairs.
    """
    half = torch.linspace(0, math.pi / 2, ANGLES, dtype=torch.float64)
    with torch.no_grad():
        limit = kernel.limit()
        at_angles = limit.recursion(Correlation(2 * half.sin().square(), 2 * half.cos().square()))
        return at_angles.ntk / limit.at_equal_inputs().ntk


@dataclass(frozen=True, eq=False)
class Sampled:
    """Kernels of the first input with all, (networks, angles), divided by the mean of the kernel at equal inputs."""

    kernels: Tensor

    @property
    def relative_variance(self) -> tuple[float, float]:
        """The variance of the kernel at equal inputs and its standard error, relative to the squared mean."""
        squares = (self.kernels[:, 0] - self.kernels[:, 0].mean()).square()
        count = len(squares)
        spread = squares * (count / (count - 1))
        return float(spread.mean()), float(spread.std() / count**0.5)


def kernel_against_angle(setting: Setting, curves: dict[Architecture, Tensor], sampled: Sampled | None) -> Figure:
    """The curve of each architecture, with sampled networks around the chosen one."""
    degrees = torch.linspace(0, 180, ANGLES, dtype=torch.float64)
    lines = [
        Line(numbers(degrees), numbers(curve), TITLES[architecture], colour=_colour(architecture))
        for architecture, curve in curves.items()
    ]
    cosine = torch.deg2rad(degrees).cos()
    return Figure(
        name="kernel_against_angle",
        title=f"Tangent kernel against angle at depth {setting.depth}",
        caption="How alike two inputs look to each network while it trains, relative to equal inputs. A curve that "
        "drops at once to a plateau tells hardly any two inputs from any other two; the dashed cosine is a linear "
        "model.",
        x_label="angle between the inputs (degrees)",
        y_label="kernel relative to equal inputs",
        marks=(
            *(_bundle(setting, sampled) if sampled else ()),
            *lines,
            Line(numbers(degrees), numbers(cosine), "linear model", dashed=True, colour="ink"),
        ),
    )


def _bundle(setting: Setting, sampled: Sampled) -> tuple[Mark, ...]:
    """One faint line for each network, the area they fill, and their mean with its standard error."""
    shade = _colour(setting.architecture)
    degrees = numbers(torch.linspace(0, 180, sampled.kernels.shape[1], dtype=torch.float64))
    rows = [Line(degrees, numbers(row), colour=shade, faint=True) for row in sampled.kernels]
    error = sampled.kernels.std(0) / math.sqrt(len(sampled.kernels))
    name = f"mean of {len(rows)} drawn"
    low, high = torch.aminmax(sampled.kernels, dim=0)
    area = Band(degrees, numbers(low), numbers(high), colour=shade)
    return (area, *rows, Points(degrees, numbers(sampled.kernels.mean(0)), name, error=numbers(error)))


def _colour(architecture: Architecture) -> str:
    return colour(list(TITLES).index(architecture))


SCALES = (0.01, 0.04, 0.09, 0.15, 0.23, 0.35, 0.52, 0.8, 1.3, 2.0)


def signal_growth(setting: Setting) -> float:
    """The factor (1 + α^m)^L by which the squared signal grows from first to last block."""
    return math.exp(setting.depth * math.log1p(setting.block_gain))


def growth_against_scale(setting: Setting) -> Figure:
    """Growth of the signal and spread of the kernel of the residual network against the branch scale."""
    settings = [replace(setting, branch_scale=scale) for scale in SCALES]
    growth, spread = zip(*(growth_and_spread(each) for each in settings), strict=True)
    return Figure(
        name="growth_against_scale",
        title=f"ResNet of depth {setting.depth} against the scale of its branches",
        caption="Growth (1 + α^m)^L of the squared signal, and width times relative variance of the kernel. Both are "
        "flat up to about the marked scale and explode beyond it: with branches of the scale a·L^(−1/m) signal and "
        "kernel stay bounded however deep the network is.",
        x_label="branch scale α",
        y_label="growth, or width × relative variance",
        marks=(
            Line(numbers(SCALES), numbers(growth), "signal"),
            Line(numbers(SCALES), numbers(spread), "kernel"),
            Reference(setting.marked_scale, f"α = {setting.mark:g}·L^(−1/{setting.branch_depth})", axis="x"),
            Points((setting.branch_scale,) * 2, growth_and_spread(setting), "now"),
        ),
        x_log=True,
        y_log=True,
    )


def growth_and_spread(setting: Setting) -> tuple[float, float]:
    """Growth of the squared signal, and width times relative variance of the kernel, of the residual network."""
    return signal_growth(setting), setting.width * relative_variance(setting, "resnet")


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


SAMPLED_ANGLES = 9
"""From 0 to π; the narrowest network of the view is still twice as wide as there are inputs."""

AT_ONCE = 5


def plane(angles: int = SAMPLED_ANGLES) -> Tensor:
    """Vectors of the plane with ‖x‖² = d = 2, at equal steps of the angle to the first from 0 to π."""
    theta = torch.linspace(0, math.pi, angles, dtype=torch.float64)
    return 2**0.5 * torch.stack([theta.cos(), theta.sin()], 1)


@dataclass(frozen=True)
class Sampling:
    """Which networks to draw: how many, from which seed, with which layers trained."""

    network: Network
    networks: int
    seed: int
    trained: str

    @property
    def rounds(self) -> list[int]:
        """How many networks are drawn at a time."""
        whole, rest = divmod(self.networks, AT_ONCE)
        return [AT_ONCE] * whole + [rest] * bool(rest)

    def draw(self, progress: Progress = silent) -> Sampled:
        """The kernels of all networks, relative to their exact mean at equal inputs."""
        inputs, mean = plane(), float(kernel_moments(self.network, self.trained).mean)
        generator, rounds = Randomness(self.seed).torch(), self.rounds
        sizes = track(rounds, "sampled networks", len(rounds), progress)
        drawn = [sample_kernels(self.network, inputs, size, generator, self.trained) for size in sizes]
        return Sampled(torch.cat([each.samples[:, 0] for each in drawn]) / mean)
