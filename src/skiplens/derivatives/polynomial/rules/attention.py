"""Attention with its weights as constants: linear in the values."""

from dataclasses import dataclass

import torch
from torch import Tensor, fx

from skiplens.derivatives.polynomial.rules.rule import Fates, Rule, status_at
from skiplens.derivatives.polynomial.step import Slot, Step


@dataclass(frozen=True)
class Attention(Rule):
    """``scaled_dot_product_attention(query, key, value, …)`` as weights times values."""

    curves = True

    def carried_slots(self, node: fx.Node, fates: Fates) -> tuple[Slot, ...] | None:
        """The values."""
        return ((2,),) if status_at(node, (2,), fates) == "carried" else None

    def apply(self, step: Step, with_constants: bool) -> Tensor:
        """All entries side by side as features of one value, so that the weights are computed once."""
        entries, features = step.stack.shape[0], step.stack.shape[-1]
        beside = step.stack.movedim(0, -2).flatten(-2)
        with torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.MATH):  # others want equal feature counts
            mixed = step.call({(2,): beside})
        return mixed.unflatten(-1, (entries, features)).movedim(-2, 0)
