"""What the scale of the branches does at one depth, and where the scale a·L^(−1/m) stands."""

import math
from dataclasses import replace

from skiplens.explorer.views.tangent.architectures import Setting
from skiplens.explorer.views.tangent.fluctuation import relative_variance
from skiplens.figures import Figure, Line, Points, Reference
from skiplens.figures.figure import numbers

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
