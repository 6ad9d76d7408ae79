"""What the tangent view says about its numbers."""

import math

from torch import Tensor

from skiplens.explorer.views.tangent.against_scale import signal_growth
from skiplens.explorer.views.tangent.architectures import TITLES, Architecture, Setting
from skiplens.explorer.views.tangent.fluctuation import moments, relative_variance
from skiplens.theory.finite_width.asymptotics import scaled_variance_limit

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
