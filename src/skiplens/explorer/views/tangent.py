"""The tangent view's controls, and how its parts come together."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from torch import Tensor

from skiplens.base.progress import Progress
from skiplens.explorer.control import Choice, Control, Slider, Switch
from skiplens.explorer.view import Drawing, Values, View
from skiplens.explorer.views.tangent_figures import (
    ANGLES,
    SAMPLED_ANGLES,
    TITLES,
    Architecture,
    Sampled,
    Sampling,
    Setting,
    growth_against_scale,
    kernel_against_angle,
    moments,
    relative_kernel,
    relative_variance,
    signal_growth,
    variance_against_depth,
    variance_against_width,
)
from skiplens.kernels.finite_width.reduced_moments import scaled_variance_limit

CONTROLS: tuple[Control, ...] = (
    Choice(
        "architecture",
        "Architecture",
        help="The network that the numbers and the sampled networks are of; all three curves are always drawn.",
        options=(("resnet", "ResNet"), ("densenet", "DenseNet"), ("vanilla", "vanilla (no skips)")),
        default="resnet",
    ),
    Slider(
        "depth",
        "Depth L",
        help="How many residual blocks, or layers, follow each other.",
        low=1,
        high=100,
        default=20,
        whole=True,
        logarithmic=True,
    ),
    Slider(
        "branch_depth",
        "Branch depth m",
        help="How many weight matrices the branch beside each skip has; there is a ReLU between any two of them.",
        low=1,
        high=4,
        default=2,
        whole=True,
    ),
    Slider(
        "branch_scale",
        "Branch scale α",
        help="How strong each matrix of a branch is: a block adds α^m times the squared signal that enters it.",
        low=0.01,
        high=2.0,
        default=0.3,
        logarithmic=True,
    ),
    Slider(
        "mark",
        "Marked scale a",
        help="Marks the scale α = a·L^(−1/m), at which signal and kernel stay bounded at every depth.",
        low=0.1,
        high=2.0,
        default=1.0,
        step=0.1,
    ),
    Slider(
        "width",
        "Width n",
        help="Units in each layer of a finite network; the smooth curves are for infinitely many.",
        low=20,
        high=1000,
        default=100,
        whole=True,
        logarithmic=True,
    ),
    Choice(
        "trained",
        "Trained layers",
        help="Whether only the matrices between the first and the last layer learn, as in the paper, or all of them.",
        options=(("branches", "all but first and last"), ("all", "all")),
        default="branches",
    ),
    Switch(
        "sampled",
        "Draw finite networks",
        help="Draws networks of this width with random weights and shows the kernel of each.",
        default=True,
    ),
    Slider(
        "networks",
        "Networks drawn",
        help="How many finite networks; more of them give a steadier mean and take longer.",
        low=5,
        high=100,
        default=20,
        step=5,
        whole=True,
        only_when=("sampled", (True,)),
    ),
    Slider(
        "seed",
        "Seed",
        help="Names the random weights: the same seed draws the same networks.",
        low=0,
        high=99,
        default=0,
        whole=True,
        only_when=("sampled", (True,)),
    ),
)

NOTES = (
    "Formulas of Littwin and Wolf 2020, Residual Tangent Kernels, as corrected; variances are exact, not bounds.",
    "Sampled kernels are divided by the exact mean at equal inputs.",
)


@dataclass(frozen=True)
class TangentView(View):
    """Kernel against angle, spread against depth and width, growth against scale."""

    name: ClassVar[str] = "tangent"
    title: ClassVar[str] = "Tangent"
    lead: ClassVar[str] = (
        "Which inputs does an architecture tell apart, and how far is a finite network from its limit?"
    )

    def controls(self, words: Mapping[str, str]) -> tuple[Control, ...]:
        """The same for every address."""
        return CONTROLS

    def draw(self, values: Values, measured: Any = None) -> Drawing:
        """The infinitely wide curves and exact variances, with sampled networks once there are some."""
        setting, sampled = Setting.of(values), measured if isinstance(measured, Sampled) else None
        curves = {architecture: relative_kernel(setting.kernel(architecture)) for architecture in TITLES}
        return Drawing(
            figures=(
                kernel_against_angle(setting, curves, sampled),
                variance_against_depth(setting, sampled),
                variance_against_width(setting, sampled),
                growth_against_scale(setting),
            ),
            says=what_you_see(setting, curves),
            facts=facts(setting),
            code=code(setting, ANGLES, _sampling(values) if values["sampled"] else None),
            notes=NOTES,
        )

    def measurement(self, values: Values) -> Values | None:
        """All that sampled networks depend on: everything but the marked scale."""
        if not values["sampled"]:
            return None
        residual = ("branch_depth", "branch_scale") if values["architecture"] == "resnet" else ()
        names = ("architecture", "depth", "width", "trained", "networks", "seed", *residual)
        return {name: values[name] for name in names}

    def measure(self, values: Values, progress: Progress) -> Sampled:
        """Random finite networks of the chosen architecture."""
        return _sampling(values).draw(progress)


def _sampling(values: Values) -> Sampling:
    known = {control.name: control.default for control in CONTROLS} | dict(values)
    return Sampling(Setting.of(known).network(), values["networks"], values["seed"], values["trained"])


_CURVE = """\
import torch, skiplens as sl
angles = torch.linspace(0, torch.pi, {angles}, dtype=torch.float64)
inputs = 2**0.5 * torch.stack([angles.cos(), angles.sin()], 1)
result = sl.{kernel}.ntk(inputs[:1], inputs)[0]
"""

_SAMPLED = """
from skiplens.base.randomness import Randomness
from skiplens.kernels.finite_width import DenseNet, ResNet, Vanilla, kernel_moments, sample_kernels
network, generator = {network}, Randomness({seed}).torch()
few = inputs[::{every}]
rounds = [sample_kernels(network, few, size, generator, {trained!r}) for size in {rounds}]
sampled = torch.cat([each.samples[:, 0] for each in rounds]) / kernel_moments(network, {trained!r}).mean
"""


def code(setting: Setting, angles: int, sampling: Sampling | None) -> str:
    """Four lines for the kernel of the chosen architecture; a few more draw the same networks."""
    curve = _CURVE.format(angles=angles, kernel=_kernel(setting))
    if sampling is None:
        return curve
    return curve + _SAMPLED.format(
        network=sampling.network,
        seed=sampling.seed,
        every=(angles - 1) // (SAMPLED_ANGLES - 1),
        trained=sampling.trained,
        rounds=sampling.rounds,
    )


def _kernel(setting: Setting) -> str:
    options = f"trained={setting.trained!r}, normalise=True"
    match setting.architecture:
        case "resnet":
            sizes = f"depth={setting.depth}, branch_depth={setting.branch_depth}, branch_scale={setting.branch_scale}"
            return f"ResNetKernel({sizes}, {options})"
        case "densenet":
            return f"DenseNetKernel(depth={setting.depth}, {options})"
        case "vanilla":
            return f"VanillaKernel(depth={setting.depth}, {options})"


BOUNDED = 2.0
"""A signal that grows by at most e² on its way counts as bounded."""

CLOSE = 0.1
"""A kernel that varies by less than a tenth counts as close to its limit."""


def what_you_see(setting: Setting, curves: dict[Architecture, Tensor]) -> str:
    """One sentence about the curves, one about the scale of the branches, one about the spread."""
    return " ".join((_angles(setting, curves), _scale(setting), _spread(setting)))


def facts(setting: Setting) -> tuple[tuple[str, str], ...]:
    """The few numbers of the chosen architecture, and the marked scale."""
    found = moments(setting.network(), setting.trained)
    return (
        ("kernel at equal inputs", in_digits(float(found.mean))),
        (f"its spread at width {setting.width}", f"±{share(math.sqrt(found.relative_variance))}"),
        ("width for a spread of ±10 %", f"about {in_digits(_width_for(0.1, setting))}"),
        ("marked scale α = a·L^(−1/m)", in_digits(setting.marked_scale)),
        (f"growth of the squared signal{_of_the_resnet(setting, ', ResNet')}", f"×{in_digits(signal_growth(setting))}"),
    )


def share(part: float) -> str:
    """A part of the mean: in per cent, or in multiples if there are any; what rounding left of nothing is 0."""
    if abs(part) < 1e-12:
        return "0 %"
    return f"{in_digits(100 * part, 2)} %" if part < 1 else f"{in_digits(part, 2)} times its mean"


def in_digits(number: float, digits: int = 3) -> str:
    """The number with a few digits, without an exponent where it is of ordinary size."""
    if number and not 1e-4 <= abs(number) < 1e6:
        return f"{number:.{digits - 1}e}"
    rounded = float(f"{number:.{digits}g}")
    return f"{rounded:g}" if abs(rounded) < 1e4 else f"{rounded:,.0f}"


def _width_for(spread: float, setting: Setting) -> float:
    """The width at which the kernel varies by this share of its mean, from its variance per unit of a wide network."""
    return scaled_variance_limit(setting.network(), setting.trained) / spread**2


def _angles(setting: Setting, curves: dict[Architecture, Tensor]) -> str:
    middle = {architecture: float(curve[len(curve) // 2]) for architecture, curve in curves.items()}
    seen = ", ".join(f"{share(value)} to {_called(architecture)}" for architecture, value in middle.items())
    linear = " (branches of one matrix have no ReLU: this ResNet is linear)" if setting.branch_depth == 1 else ""
    return f"How alike inputs at a right angle look (equal ones: 100 %): {seen}{linear}."


def _called(architecture: Architecture) -> str:
    return "the vanilla network" if architecture == "vanilla" else f"the {TITLES[architecture]}"


def _scale(setting: Setting) -> str:
    branches = f"The branches{_of_the_resnet(setting, ' of the ResNet')}"
    growth, marked = in_digits(signal_growth(setting)), f"the marked scale α = {in_digits(setting.marked_scale)}"
    if _is_bounded(setting):
        return f"{branches} are small enough for this depth: the squared signal grows only by {growth}."
    advice = "would keep it bounded" if _is_bounded(setting.at_marked_scale()) else "is too large as well, so lower a"
    return f"{branches} are too large for this depth: the squared signal grows by {growth}; {marked} {advice}."


def _is_bounded(setting: Setting) -> bool:
    return setting.depth * math.log1p(setting.block_gain) <= BOUNDED


def _of_the_resnet(setting: Setting, words: str) -> str:
    """The words that name the ResNet where numbers are of it although another architecture is chosen."""
    return "" if setting.architecture == "resnet" else words


def _spread(setting: Setting) -> str:
    spread = math.sqrt(relative_variance(setting, setting.architecture))
    start = f"From draw to draw the kernel of {_called(setting.architecture)} of width {setting.width} varies by"
    if spread < CLOSE:
        return f"{start} {share(spread)}: it is close to its infinitely wide limit."
    if spread < 1:
        return f"{start} {share(spread)}: the limit describes the average network, single ones lie beside it."
    return f"{start} {share(spread)}: the infinitely wide limit says little about one network."
