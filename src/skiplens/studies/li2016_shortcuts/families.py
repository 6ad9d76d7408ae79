"""The kinds of networks that the paper compares: where their weights start, and their shortcuts."""

from dataclasses import dataclass
from typing import Literal

import torch

from skiplens.core.axes import Float, Tensor
from skiplens.residual.initialisation import Law, orthogonal_weights, scaled, xavier_weights
from skiplens.studies.li2016_shortcuts.digits import WIDTH
from skiplens.theory.shortcut_hessian import LinearUnit, plain_units, shortcut_units

FamilyName = Literal["xavier", "orthogonal", "1-shortcut", "2-shortcut", "3-shortcut"]


@dataclass(frozen=True)
class Family:
    """Networks with the same shortcuts and the same law of the initial weights."""

    law: Law
    branch_depth: int = 1
    shortcut: bool = False

    def start(self, depth: int, generator: torch.Generator) -> Float[Tensor, "matrices width width"]:
        """Initial weights W_1, …, W_D, drawn in this order."""
        return torch.stack([self.law((WIDTH, WIDTH), generator) for _ in range(depth)])

    def units(self, weights: Float[Tensor, "matrices width width"]) -> tuple[LinearUnit, ...]:
        """The linear network with these weights."""
        return shortcut_units(weights, self.branch_depth) if self.shortcut else plain_units(weights)


_NEAR_ZERO = scaled(xavier_weights, 0.01)

FAMILIES: dict[FamilyName, Family] = {
    "xavier": Family(xavier_weights),
    "orthogonal": Family(orthogonal_weights),
    "1-shortcut": Family(_NEAR_ZERO, 1, shortcut=True),
    "2-shortcut": Family(_NEAR_ZERO, 2, shortcut=True),
    "3-shortcut": Family(_NEAR_ZERO, 3, shortcut=True),
}
