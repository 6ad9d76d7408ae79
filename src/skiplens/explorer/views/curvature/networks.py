"""Linear networks of one setting: their weights where training starts, and their Hessians there and at zero."""

from dataclasses import dataclass
from functools import cached_property
from typing import Literal

import torch
from torch import Tensor

from skiplens.core.randomness import Randomness
from skiplens.explorer.view import Values
from skiplens.explorer.views.curvature.tasks import TaskName, task
from skiplens.residual.initialisation import Law, orthogonal_weights, scaled, xavier_weights
from skiplens.theory.shortcut_hessian import (
    LinearUnit,
    SecondMoments,
    hessian_at_zero,
    linear_hessian,
    plain_units,
    second_moments,
    shortcut_units,
)

Start = Literal["near_zero", "xavier", "orthogonal"]

LAWS: dict[Start, Law] = {
    "near_zero": scaled(xavier_weights, 0.01),
    "xavier": xavier_weights,
    "orthogonal": orthogonal_weights,
}


def initial_weights(start: Start, matrices: int, width: int, seed: int) -> Tensor:
    """Square weight matrices drawn by the law of a start, (matrices, width, width)."""
    generator = Randomness(seed).torch()
    return torch.stack([LAWS[start]((width, width), generator) for _ in range(matrices)])


def units_of(weights: Tensor, branch_depth: int) -> tuple[LinearUnit, ...]:
    """The network of these matrices; without shortcuts if there are no branches."""
    return shortcut_units(weights, branch_depth) if branch_depth else plain_units(weights)


@dataclass(frozen=True)
class Setting:
    """A linear network with its start and its task.

    Attributes:
        branch_depth: Weight matrices that each shortcut jumps over (n); 0 for no shortcuts.
        depth: Weight matrices asked for; as many as make whole units are there.
        initialisation: The law of the weights where training starts.
        data: The task.
        width: Features of input, output and every layer.
        seed: Names the weights.
    """

    branch_depth: int = 2
    depth: int = 16
    initialisation: Start = "near_zero"
    data: TaskName = "digits"
    width: int = 4
    seed: int = 0

    @classmethod
    def of(cls, values: Values) -> "Setting":
        """The setting that the values of the controls describe."""
        return cls(**{name: values[name] for name in cls.__dataclass_fields__})

    @property
    def units(self) -> int:
        """Residual units that fit into the depth, at least one; single matrices without shortcuts."""
        return max(1, self.depth // max(1, self.branch_depth))

    @property
    def matrices(self) -> int:
        """Weight matrices that are there."""
        return self.units * max(1, self.branch_depth)

    @property
    def parameters(self) -> int:
        """All weights."""
        return self.matrices * self.width**2

    @cached_property
    def moments(self) -> SecondMoments:
        """All that a linear network sees of the task."""
        return second_moments(*task(self.data, self.width))

    @cached_property
    def start(self) -> tuple[LinearUnit, ...]:
        """The network where training starts."""
        weights = initial_weights(self.initialisation, self.matrices, self.width, self.seed)
        return units_of(weights, self.branch_depth)

    @cached_property
    def eigenvalues_at_zero(self) -> Tensor:
        """All eigenvalues of the Hessian where all weights are zero, ascending."""
        if self.branch_depth == 0:
            zeros = torch.zeros(self.matrices, self.width, self.width, dtype=torch.float64)
            return torch.linalg.eigvalsh(linear_hessian(units_of(zeros, 0), self.moments))
        point = hessian_at_zero(*task(self.data, self.width), self.units, self.branch_depth)
        if self.branch_depth == 1:
            return torch.linalg.eigvalsh(point.dense())
        return point.spectrum.expanded()  # type: ignore[attr-defined]  # of two and more matrices it is listed

    @cached_property
    def eigenvalues_at_start(self) -> Tensor:
        """All eigenvalues of the Hessian where training starts, ascending."""
        return torch.linalg.eigvalsh(linear_hessian(self.start, self.moments))
