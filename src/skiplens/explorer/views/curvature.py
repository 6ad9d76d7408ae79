"""The curvature view's controls, and how its parts come together."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor

from skiplens.explorer.control import Choice, Control, Slider
from skiplens.explorer.view import Drawing, Values, View
from skiplens.explorer.views.curvature_networks import (
    BEYOND_ROUNDING,
    Setting,
    Shape,
    condition_against_depth,
    loss_on_the_way_down,
    shape_of,
)
from skiplens.papers.li2016_shortcuts.hessian.linear import linear_gradient, linear_loss
from skiplens.plots.figure import Figure, Line, Reference, numbers

CONTROLS: tuple[Control, ...] = (
    Slider(
        "branch_depth",
        "Shortcut depth n",
        help="How many weight matrices each shortcut jumps over; 0 is a plain network without shortcuts.",
        low=0,
        high=4,
        default=2,
        whole=True,
    ),
    Slider(
        "depth",
        "Network depth",
        help="How many weight matrices the network has; as many as make whole units are used.",
        low=1,
        high=32,
        default=16,
        whole=True,
    ),
    Choice(
        "initialisation",
        "Start of training",
        help="Where the weights start: very small, Gaussian of the size that keeps signals (Xavier), or orthogonal.",
        options=(("near_zero", "near zero"), ("xavier", "Xavier"), ("orthogonal", "orthogonal")),
        default="near_zero",
    ),
    Choice(
        "data",
        "Data",
        help="What is learned: handwritten digits, a random linear map, a rotation, or a map close to the identity.",
        options=(("digits", "digits"), ("random", "random map"), ("rotation", "rotation"), ("near", "near identity")),
        default="digits",
    ),
    Slider(
        "width",
        "Width",
        help="Features of input, output and every layer; of digits so many classes and whitened components.",
        low=2,
        high=4,
        default=4,
        whole=True,
    ),
    Slider(
        "seed",
        "Seed",
        help="Names the random weights where training starts: the same seed draws the same ones.",
        low=0,
        high=99,
        default=0,
        whole=True,
    ),
)

NOTES = (
    "Linear networks with square loss, as in Li, Jiao, Han and Weissman 2016, Demystifying ResNet; Hessians are exact.",
    "The condition number is the largest |eigenvalue| over the one that a tenth of all lie below.",
    "Digits are averaged to 7 × 7 pixels and whitened.",
)


@dataclass(frozen=True)
class CurvatureView(View):
    """Eigenvalues at zero and where training starts, condition number against depth, loss on the way down."""

    name: ClassVar[str] = "curvature"
    title: ClassVar[str] = "Curvature"
    lead: ClassVar[str] = (
        "How does the loss bend where training starts, and why are shortcuts over two matrices special?"
    )

    def controls(self, words: Mapping[str, str]) -> tuple[Control, ...]:
        """The same for every address."""
        return CONTROLS

    def draw(self, values: Values, measured: Any = None) -> Drawing:
        """Everything is exact and quick."""
        setting = Setting.of(values)
        return Drawing(
            figures=(
                eigenvalue_picture(setting),
                condition_against_depth(setting),
                loss_on_the_way_down(setting),
            ),
            says=what_you_see(setting),
            facts=facts(setting),
            rows=rows(setting),
            code=code(setting),
            notes=NOTES,
        )


_CODE = """\
import torch
from skiplens.explorer.views.curvature_networks import task
from skiplens.explorer.views.curvature_networks import initial_weights
from skiplens.papers.li2016_shortcuts.hessian import linear_hessian{units}, second_moments{at_zero}
inputs, targets = task({data!r}, width={width})
network = {units}(initial_weights({start!r}, {matrices}, {width}, seed={seed}){branch_depth})
result = torch.linalg.eigvalsh(linear_hessian(network, second_moments(inputs, targets)))
"""

_AT_ZERO = "zero = hessian_at_zero(inputs, targets, units={units}, branch_depth={branch_depth}).spectrum\n"


def code(setting: Setting) -> str:
    """The eigenvalues where training starts, and with shortcuts also what is known at zero."""
    has_shortcuts = setting.branch_depth > 0
    start = _CODE.format(
        units="shortcut_units" if has_shortcuts else "plain_units",
        at_zero=", hessian_at_zero" if has_shortcuts else "",
        data=setting.data,
        width=setting.width,
        start=setting.initialisation,
        matrices=setting.matrices,
        seed=setting.seed,
        branch_depth=f", {setting.branch_depth}" if has_shortcuts else "",
    )
    zero = _AT_ZERO.format(units=setting.units, branch_depth=setting.branch_depth)
    return start + zero if has_shortcuts else start


FLAT = 1e-12
"""An eigenvalue below this is flat: curvatures of these tasks are of order one."""


def what_you_see(setting: Setting) -> str:
    """One sentence about zero, one about where training starts."""
    return f"{_at_zero(setting)} {_at_start(setting)}"


def facts(setting: Setting) -> tuple[tuple[str, str], ...]:
    """The few numbers of both points."""
    zero, start = shape_of(setting.eigenvalues_at_zero), shape_of(setting.eigenvalues_at_start)
    return (
        ("weight matrices", _counted(setting)),
        ("condition number at zero", condition(zero)),
        ("condition number at the start", condition(start)),
        ("directions down at zero", f"{100 * zero.index:.0f} %"),
        ("directions down at the start", f"{100 * start.index:.0f} %"),
        ("loss at the start", f"{float(linear_loss(setting.start, setting.moments)):.3g}"),
    )


def rows(setting: Setting) -> tuple[dict[str, str | float], ...]:
    """Both points side by side."""
    points = (("zero weights", setting.eigenvalues_at_zero), ("start", setting.eigenvalues_at_start))
    return tuple(_row(name, shape_of(eigenvalues)) for name, eigenvalues in points)


def condition(shape: Shape) -> str:
    """The condition number in words."""
    if math.isnan(shape.condition_number):
        return "none: the Hessian is zero"
    return f"{shape.condition_number:.3g}" if shape.condition_number < BEYOND_ROUNDING else "above 1e13"


def _counted(setting: Setting) -> str:
    if setting.branch_depth == 0:
        return f"{setting.matrices}, no shortcuts"
    return f"{setting.matrices} in {setting.units} unit{'s' if setting.units > 1 else ''}"


def _row(name: str, shape: Shape) -> dict[str, str | float]:
    return {
        "point": name,
        "largest eigenvalue": shape.largest,
        "smallest eigenvalue": shape.smallest,
        "condition number": condition(shape),
        "share of negative eigenvalues": shape.index,
    }


def _at_zero(setting: Setting) -> str:
    zero = shape_of(setting.eigenvalues_at_zero)
    if max(abs(zero.largest), abs(zero.smallest)) < FLAT:
        many = (
            f"n = {setting.branch_depth}" if setting.branch_depth else f"{setting.matrices} matrices without shortcuts"
        )
        near = setting.initialisation == "near_zero"
        follows = "gradient descent starts on a plateau" if near else "who starts near zero starts on a plateau"
        return f"The Hessian at zero vanishes for {many}: {follows}."
    if setting.branch_depth == 1:
        return (
            f"With a shortcut over each matrix the largest curvature at zero grows with depth, to {zero.largest:.3g} "
            f"here, and with it the condition number, to {condition(zero)}: the deeper, the smaller the steps."
        )
    if setting.branch_depth == 2:
        return (
            f"With shortcuts over two matrices the condition number at zero is {condition(zero)} at every depth, and "
            "half of all directions go down: zero is a saddle that gradient descent leaves."
        )
    return f"The Hessian at zero has the condition number {condition(zero)}."


def _at_start(setting: Setting) -> str:
    start = shape_of(setting.eigenvalues_at_start)
    slope = float(linear_gradient(setting.start, setting.moments).norm())
    return (
        f"Where training starts the curvatures reach from {start.smallest:.2g} to {start.largest:.2g}, the condition "
        f"number is {condition(start)} and the gradient is {slope:.2g} long."
    )


def eigenvalue_picture(setting: Setting) -> Figure:
    """The sorted eigenvalues of the Hessian at both points."""
    return Figure(
        name="eigenvalues",
        title=f"Eigenvalues of the Hessian, {setting.parameters} weights",
        caption="All directions of the weights in the order of their curvature. Below zero the loss goes down, at zero "
        "it is flat; long steps at one height are many directions with the same curvature.",
        x_label="share of all directions",
        y_label="eigenvalue",
        marks=(
            _steps(setting.eigenvalues_at_start, "where training starts"),
            _steps(setting.eigenvalues_at_zero, "at zero weights", dashed=True),
            Reference(0.0),
        ),
    )


def _steps(eigenvalues: Tensor, name: str, dashed: bool = False) -> Line:
    share = (torch.arange(len(eigenvalues), dtype=torch.float64) + 0.5) / len(eigenvalues)
    return Line(numbers(share), numbers(eigenvalues), name, dashed=dashed)
