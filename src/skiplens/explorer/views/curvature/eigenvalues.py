"""All eigenvalues in order: at zero weights and where training starts."""

import torch
from torch import Tensor

from skiplens.explorer.views.curvature.networks import Setting
from skiplens.figures import Figure, Line, Reference
from skiplens.figures.figure import numbers


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
