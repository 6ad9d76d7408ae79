"""The tangent view: three architectures as infinitely wide kernels and as finite networks drawn around them."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from typing import Any

import torch
from torch import Tensor

from skiplens.base import InvalidInputError, Progress, Randomness, in_words, silent, track
from skiplens.explorer.control import Control
from skiplens.explorer.view import Drawing, Values, View
from skiplens.explorer.views.runs_folder import RunsFolder, model_among, with_models
from skiplens.explorer.written import controls_of, notes_of, snippet, worded
from skiplens.kernels.arc_cosine import Correlation
from skiplens.kernels.architectures import Architecture, InfiniteWidthKernel, Trained, kernel_by_name
from skiplens.kernels.finite_width import kernel_moments, sample_kernels
from skiplens.kernels.finite_width.networks import DenseNet, Network, ResNet, Vanilla
from skiplens.kernels.finite_width.reduced_moments import scaled_variance_limit
from skiplens.plots.figure import Band, Figure, Line, Mark, Points, Reference, colour, numbers
from skiplens.report import Report
from skiplens.signal.structure import StructureReading
from skiplens.tangent.reading import TangentReading

_TITLES: dict[Architecture, str] = {"resnet": "ResNet", "densenet": "DenseNet", "vanilla": "vanilla"}
"""Each architecture as people call it, in the order of its colours."""

CONTROLS = controls_of("tangent")
_ANGLES, _SAMPLED_ANGLES = 65, 9  # from 0 to π; the narrowest network is twice as wide as there are sampled inputs
_AT_ONCE = 5  # networks that are drawn together
_moments = lru_cache(maxsize=4096)(kernel_moments)  # a slider that moves asks for most of them again
_SCALES = (0.01, 0.04, 0.09, 0.15, 0.23, 0.35, 0.52, 0.8, 1.3, 2.0)
_DEPTHS = (1, 2, 4, 7, 12, 20, 35, 60, 100)
_WIDTHS = (20, 40, 90, 200, 450, 1000)


@dataclass(frozen=True)
class TangentView(View):
    """Kernel against angle, spread against depth and width, growth against scale."""

    name = "tangent"
    title = "Tangent"
    lead = "Which inputs does an architecture tell apart, and how far is a finite network from its limit?"

    runs: RunsFolder | None = None  # whose models can be laid over the theory

    def controls(self, words: Mapping[str, str]) -> tuple[Control, ...]:
        """Those of the theory, and the reports among the runs, where there are any."""
        return with_models(CONTROLS, self.runs)

    def draw(self, values: Values, measured: Any = None) -> Drawing:
        """The infinitely wide curves and exact variances, with sampled networks once there are some."""
        setting, sampled = Setting.of(values), measured if isinstance(measured, Sampled) else None
        curves = {architecture: relative_kernel(setting.kernel(architecture)) for architecture in _TITLES}
        found = model_among(self.runs, values)
        drawing = Drawing(
            figures=(
                _kernel_against_angle(setting, curves, sampled),
                _variance_against_depth(setting, sampled),
                _variance_against_width(setting, sampled),
                _growth_against_scale(setting),
            ),
            says=f"{_about_angles(setting, curves)} {_about_scale(setting)} {_about_spread(setting)}",
            facts=_facts(setting),
            code=_code(setting, Sampling.of(values) if values["sampled"] else None),
            notes=notes_of("tangent"),
        )
        return _haunted(drawing, setting, *found) if found else drawing

    def measurement(self, values: Values) -> Values | None:
        """All that sampled networks depend on: everything but the marked scale."""
        if not values["sampled"]:
            return None
        residual = ("branch_depth", "branch_scale") if values["architecture"] == "resnet" else ()
        names = ("architecture", "depth", "width", "trained", "networks", "seed", *residual)
        return {name: values[name] for name in names}

    def measure(self, values: Values, progress: Progress) -> "Sampled":
        """Random finite networks of the chosen architecture."""
        return Sampling.of(values).draw(progress)


@dataclass(frozen=True)
class Setting:
    """One depth (L) and width (n) for all architectures, and the branches of the residual one (m matrices of scale α).

    The fields are controls of the view; `architecture` is the one that numbers and sampled networks are of.
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
    def log_growth(self) -> float:
        """The logarithm of (1 + α^m)^L, by which the squared signal of the residual network grows on its way."""
        return self.depth * math.log1p(self.branch_scale**self.branch_depth)

    @property
    def marked_scale(self) -> float:
        """The scale α = a·L^(−1/m) at this depth."""
        # Four digits: the moments are exact in its decimals, and few of them make them quick.
        return float(f"{self.mark * self.depth ** (-1 / self.branch_depth):.4g}")

    def at_marked_scale(self) -> "Setting":
        """The same setting with the marked scale."""
        return replace(self, branch_scale=self.marked_scale)

    def network(self, architecture: Architecture | None = None) -> Network:
        """The finite network of an architecture; of the chosen one if none is named."""
        named = architecture or self.architecture
        if named == "resnet":
            return ResNet(self.depth, self.width, self.branch_depth, self.branch_scale)
        return DenseNet(self.depth, self.width) if named == "densenet" else Vanilla(self.depth, self.width)

    def kernel(self, architecture: Architecture) -> InfiniteWidthKernel:
        """The infinitely wide network's kernel, relative to equal inputs."""
        sizes = (self.depth, self.branch_depth, self.branch_scale)
        return kernel_by_name(architecture, *sizes, self.trained, normalise=True)


@lru_cache(maxsize=256)
def relative_kernel(kernel: InfiniteWidthKernel) -> Tensor:
    """The tangent kernel at equal steps of the angle from 0 to π, divided by that of equal inputs.

    Straight from the recursion and from exact angles: a table is worth its time only for many more pairs.
    """
    half = torch.linspace(0, math.pi / 2, _ANGLES, dtype=torch.float64)
    with torch.no_grad():
        limit = kernel.limit()
        at_angles = limit.recursion(Correlation(2 * half.sin().square(), 2 * half.cos().square()))
        return at_angles.ntk / limit.at_equal_inputs().ntk


def relative_variance(setting: Setting, architecture: Architecture) -> float:
    """V/(E𝒢)² of an architecture in this setting."""
    return float(_moments(setting.network(architecture), setting.trained).relative_variance)


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


@dataclass(frozen=True)
class Sampling:
    """Which networks to draw: how many, from which seed, with which layers trained."""

    network: Network
    networks: int
    seed: int
    trained: str

    @classmethod
    def of(cls, values: Values) -> "Sampling":
        """The networks that the values describe; values that do not matter to them may be missing."""
        known = {control.name: control.default for control in CONTROLS} | dict(values)
        return cls(Setting.of(known).network(), values["networks"], values["seed"], values["trained"])

    @property
    def rounds(self) -> list[int]:
        """How many networks are drawn at a time."""
        whole, rest = divmod(self.networks, _AT_ONCE)
        return [_AT_ONCE] * whole + [rest] * bool(rest)

    def draw(self, progress: Progress = silent) -> Sampled:
        """The kernels of all networks, relative to their exact mean at equal inputs."""
        theta = torch.linspace(0, math.pi, _SAMPLED_ANGLES, dtype=torch.float64)
        inputs = 2**0.5 * torch.stack([theta.cos(), theta.sin()], 1)  # ‖x‖² = d = 2
        generator = Randomness(self.seed).torch()
        sizes = track(self.rounds, "sampled networks", len(self.rounds), progress)
        drawn = [sample_kernels(self.network, inputs, size, generator, self.trained) for size in sizes]
        mean = float(kernel_moments(self.network, self.trained).mean)
        return Sampled(torch.cat([each.samples[:, 0] for each in drawn]) / mean)


def _haunted(drawing: Drawing, setting: Setting, name: str, report: Report) -> Drawing:
    """The drawing with the kernel between the samples of a model, and how far that varies from seed to seed."""
    reading, structure = report.reading(TangentReading), report.reading(StructureReading)
    if reading is None or not reading.angles.numel() or len(reading.kernel) < 2:
        raise InvalidInputError(f"The report {name!r} has no tangent kernel between vectors; choose another one.")
    first, second = torch.triu_indices(len(reading.kernel), len(reading.kernel), offset=1)
    angles, kernel = reading.angles[first, second].double(), reading.correlations[first, second].double()
    curve = relative_kernel(setting.kernel(setting.architecture))[(angles / math.pi * (_ANGLES - 1)).round().long()]
    far, cross = in_words(float((kernel - curve).abs().mean()), 2), partial(Points, colour=colour(3), crossed=True)
    says = f"Samples of {name} (crosses) lie {far} from the curve of {_called(setting.architecture)} on average."
    marks = {"kernel_against_angle": (cross(numbers(angles.rad2deg()), numbers(kernel), f"{name}, pairs of samples"),)}
    (spread, error), depth = reading.seed_variance, len(structure.block_names) if structure else 0
    if depth and spread > 0:  # NaN without seeds
        marks["variance_against_depth"] = (cross((float(depth),), (spread,), f"{name}, over seeds", error=(error,)),)
        says += f" At its {depth} blocks its kernel varies by {_share(math.sqrt(spread))} from seed to seed."
    return drawing.haunted(marks, says)


def _code(setting: Setting, sampling: Sampling | None) -> str:
    """Four lines for the kernel of the chosen architecture; a few more draw the same networks."""
    sizes = f"depth={setting.depth}"
    if setting.architecture == "resnet":
        sizes += f", branch_depth={setting.branch_depth}, branch_scale={setting.branch_scale}"
    kernel = {"resnet": "ResNetKernel", "densenet": "DenseNetKernel", "vanilla": "VanillaKernel"}[setting.architecture]
    curve = snippet("kernel", angles=_ANGLES, kernel=kernel, sizes=sizes, trained=setting.trained)
    if sampling is None:
        return curve
    return curve + snippet("sampled_kernels", own=sampling, step=(_ANGLES - 1) // (_SAMPLED_ANGLES - 1))


def _facts(setting: Setting) -> tuple[tuple[str, str], ...]:
    """The few numbers of the chosen architecture, and the marked scale."""
    found = _moments(setting.network(), setting.trained)
    of_resnet = "" if setting.architecture == "resnet" else ", ResNet"
    # The width at which the kernel varies by a tenth of its mean, from its variance per unit of a wide network.
    width = scaled_variance_limit(setting.network(), setting.trained) / 0.1**2
    return (
        ("kernel at equal inputs", in_words(float(found.mean))),
        (f"its spread at width {setting.width}", f"±{_share(math.sqrt(found.relative_variance))}"),
        ("width for a spread of ±10 %", f"about {in_words(width)}"),
        ("marked scale α = a·L^(−1/m)", in_words(setting.marked_scale)),
        (f"growth of the squared signal{of_resnet}", f"×{in_words(math.exp(setting.log_growth))}"),
    )


def _about_angles(setting: Setting, curves: dict[Architecture, Tensor]) -> str:
    middle = {architecture: float(curve[len(curve) // 2]) for architecture, curve in curves.items()}
    seen = ", ".join(f"{_share(value)} to {_called(architecture)}" for architecture, value in middle.items())
    linear = " (branches of one matrix have no ReLU: this ResNet is linear)" if setting.branch_depth == 1 else ""
    return f"How alike inputs at a right angle look (equal ones: 100 %): {seen}{linear}."


def _about_scale(setting: Setting) -> str:
    bounded = 2.0  # a signal that grows by at most e² on its way counts as bounded
    branches = "The branches" if setting.architecture == "resnet" else "The branches of the ResNet"
    growth = in_words(math.exp(setting.log_growth))
    if setting.log_growth <= bounded:
        return f"{branches} are small enough for this depth: the squared signal grows only by {growth}."
    marked = f"the marked scale α = {in_words(setting.marked_scale)}"
    is_enough = setting.at_marked_scale().log_growth <= bounded
    advice = "would keep it bounded" if is_enough else "is too large as well, so lower a"
    return f"{branches} are too large for this depth: the squared signal grows by {growth}; {marked} {advice}."


def _about_spread(setting: Setting) -> str:
    spread = math.sqrt(relative_variance(setting, setting.architecture))
    start = f"From draw to draw the kernel of {_called(setting.architecture)} of width {setting.width} varies by"
    if spread < 0.1:
        return f"{start} {_share(spread)}: it is close to its infinitely wide limit."
    if spread < 1:
        return f"{start} {_share(spread)}: the limit describes the average network, single ones lie beside it."
    return f"{start} {_share(spread)}: the infinitely wide limit says little about one network."


def _called(architecture: Architecture) -> str:
    return "the vanilla network" if architecture == "vanilla" else f"the {_TITLES[architecture]}"


def _share(part: float) -> str:
    """A part of the mean: in per cent, or in multiples if there are any; what rounding left of nothing is 0."""
    if abs(part) < 1e-12:
        return "0 %"
    return f"{in_words(100 * part, 2)} %" if part < 1 else f"{in_words(part, 2)} times its mean"


def _kernel_against_angle(setting: Setting, curves: dict[Architecture, Tensor], sampled: Sampled | None) -> Figure:
    """The curve of each architecture, with sampled networks around the chosen one."""
    degrees = torch.linspace(0, 180, _ANGLES, dtype=torch.float64)
    lines = [
        Line(numbers(degrees), numbers(curve), title, colour=colour(place))
        for place, (title, curve) in enumerate(zip(_TITLES.values(), curves.values(), strict=True))
    ]
    cosine = torch.deg2rad(degrees).cos()
    return worded(
        "kernel_against_angle",
        *(_bundle(setting, sampled.kernels) if sampled else ()),
        *lines,
        Line(numbers(degrees), numbers(cosine), "linear model", dashed=True, colour="ink"),
        depth=setting.depth,
    )


def _bundle(setting: Setting, kernels: Tensor) -> tuple[Mark, ...]:
    """One faint line for each network, the area they fill, and their mean with its standard error."""
    shade = colour(list(_TITLES).index(setting.architecture))
    degrees = numbers(torch.linspace(0, 180, kernels.shape[1], dtype=torch.float64))
    low, high = torch.aminmax(kernels, dim=0)
    error = kernels.std(0) / math.sqrt(len(kernels))
    return (
        Band(degrees, numbers(low), numbers(high), colour=shade),
        *(Line(degrees, numbers(row), colour=shade, faint=True) for row in kernels),
        Points(degrees, numbers(kernels.mean(0)), f"mean of {len(kernels)} drawn", error=numbers(error)),
    )


def _growth_against_scale(setting: Setting) -> Figure:
    """Growth of the signal and spread of the kernel of the residual network against the branch scale."""

    def growth_and_spread(scale: float) -> tuple[float, float]:
        scaled = replace(setting, branch_scale=scale)
        return math.exp(scaled.log_growth), scaled.width * relative_variance(scaled, "resnet")

    growth, spread = zip(*map(growth_and_spread, _SCALES), strict=True)
    return worded(
        "growth_against_scale",
        Line(numbers(_SCALES), numbers(growth), "signal"),
        Line(numbers(_SCALES), numbers(spread), "kernel"),
        Reference(setting.marked_scale, f"α = {setting.mark:g}·L^(−1/{setting.branch_depth})", axis="x"),
        Points((setting.branch_scale,) * 2, growth_and_spread(setting.branch_scale), "now"),
        depth=setting.depth,
    )


def _variance_against_depth(setting: Setting, sampled: Sampled | None) -> Figure:
    """Each architecture at this width; the residual one also with the scale that shrinks with depth."""
    settings = [replace(setting, depth=depth) for depth in _DEPTHS]
    rule = f"α = {setting.mark:g}·L^(−1/{setting.branch_depth})"
    shrinking = numbers([relative_variance(each.at_marked_scale(), "resnet") for each in settings])
    return worded(
        "variance_against_depth",
        *_variances(_DEPTHS, settings),
        Line(numbers(_DEPTHS), shrinking, "ResNet, α shrinking", dashed=True, colour=colour(0)),
        *_here("depth", setting.depth, sampled),
        width=setting.width,
        rule=rule,
    )


def _variance_against_width(setting: Setting, sampled: Sampled | None) -> Figure:
    """Each architecture at this depth: all fall like one over the width, from very different heights."""
    return worded(
        "variance_against_width",
        *_variances(_WIDTHS, [replace(setting, width=width) for width in _WIDTHS]),
        *_here("width", setting.width, sampled),
        depth=setting.depth,
    )


def _variances(places: Sequence[int], settings: Sequence[Setting]) -> list[Line]:
    return [
        Line(numbers(places), numbers([relative_variance(each, architecture) for each in settings]), title)
        for architecture, title in _TITLES.items()
    ]


def _here(name: str, place: int, sampled: Sampled | None) -> tuple[Mark, ...]:
    """Where the setting stands, and what was drawn there."""
    reference = Reference(float(place), f"{name} {place}", axis="x")
    if sampled is None:
        return (reference,)
    value, error = sampled.relative_variance
    return (Points((float(place),), (value,), f"{len(sampled.kernels)} drawn", error=(error,)), reference)
