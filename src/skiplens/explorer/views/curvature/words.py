"""What the curvature view says about its numbers."""

import math

from skiplens.explorer.views.curvature.conditioning import BEYOND_ROUNDING, Shape, shape_of
from skiplens.explorer.views.curvature.networks import Setting
from skiplens.theory.shortcut_hessian import linear_gradient, linear_loss

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
