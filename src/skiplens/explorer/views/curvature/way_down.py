"""The loss along the steepest way down from zero, for shortcuts over one, two and three matrices."""

from dataclasses import replace

import torch
from torch import Tensor

from skiplens.explorer.views.curvature.networks import Setting
from skiplens.explorer.views.curvature.tasks import task
from skiplens.figures import Figure, Line
from skiplens.figures.figure import numbers
from skiplens.theory.shortcut_hessian import hessian_at_zero

STEPS = torch.linspace(0, 3, 61, dtype=torch.float64)


def loss_on_the_way_down(setting: Setting) -> Figure:
    """The loss against the length of the weights, at the depth of `setting`."""
    lines = [
        Line(numbers(STEPS), numbers(losses(replace(setting, branch_depth=branch_depth))), _name(branch_depth))
        for branch_depth in (1, 2, 3)
    ]
    return Figure(
        name="way_down",
        title="Loss on the steepest way down from zero",
        caption="All units walk together from zero along the direction in which the first derivative that does not "
        "vanish falls fastest. With one matrix the loss falls at once, with two like a parabola; with three it is a "
        "plateau on which gradient descent hardly moves.",
        x_label="length of all weights together",
        y_label="loss",
        marks=tuple(lines),
    )


def losses(setting: Setting) -> Tensor:
    """The loss at each step: every unit is I − sⁿ u vᵀ with the largest singular pair u, v of the slope at zero.

    The matrices z vᵀ, z zᵀ, …, −u zᵀ of a unit all have length s, so the network's weights have the length s √matrices.
    """
    point = hessian_at_zero(*task(setting.data, setting.width), setting.units, setting.branch_depth)
    u, _, v = torch.linalg.svd(point.slope)
    s = (STEPS / setting.matrices**0.5)[:, None, None] ** setting.branch_depth
    unit = torch.eye(setting.width, dtype=torch.float64) - s * torch.outer(u[:, 0], v[0])
    return torch.stack([setting.moments.loss(W) for W in torch.linalg.matrix_power(unit, setting.units)])


def _name(branch_depth: int) -> str:
    return f"over {branch_depth} matri{'x' if branch_depth == 1 else 'ces'}"
