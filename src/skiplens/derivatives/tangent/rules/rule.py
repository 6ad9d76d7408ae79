"""A rule: the gradient of one parameter, sample by sample, from one call's inputs and its output's gradients."""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any

from skiplens.core.axes import Float, Tensor
from skiplens.derivatives.tangent.calls import Call

Cotangents = tuple[Tensor, ...]
"""Gradients with respect to the output tensors of one call."""


@dataclass(frozen=True)
class OuterShape:
    """Sizes of a gradient Σ_t left_t ⊗ right_t: the number of terms and the lengths of both sides."""

    terms: int
    left: int
    right: int


class Rule(ABC):
    """Abstract: how one parameter's gradient follows from a call; all samples at once, one output at a time."""

    @abstractmethod
    def prepare(self, call: Call, samples: int) -> Any:
        """What the gradient needs of the call's inputs, computed once for all outputs."""

    @abstractmethod
    def gradient(self, prepared: Any, cotangents: Cotangents, part: slice) -> Float[Tensor, "samples params"]:
        """Each sample's gradient of the parameter's rows `part` (its first axis), flattened."""

    def outer_shape(self, prepared: Any) -> OuterShape | None:
        """Sizes of the outer products the gradient is a sum of, or None where it is not of that form."""
        return None

    def left(self, prepared: Any) -> Tensor:
        """The side that all outputs share: (samples, terms, features), or (samples, terms) of integer names."""
        raise NotImplementedError(f"{type(self).__name__} is not a sum of outer products.")

    def right(self, prepared: Any, cotangents: Cotangents) -> Float[Tensor, "samples terms channels"]:
        """The side that comes from the output's gradient."""
        raise NotImplementedError(f"{type(self).__name__} is not a sum of outer products.")
