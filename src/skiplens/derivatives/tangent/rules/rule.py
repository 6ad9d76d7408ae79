"""A rule: the gradient of one parameter, sample by sample, from one call's inputs and its outputs' gradients."""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any

from skiplens.core.axes import Float, Tensor
from skiplens.derivatives.tangent.calls import Call

Cotangents = tuple[Tensor, ...]
"""Gradients with respect to the output tensors of one call: (batch, outputs, …), where the batch axis is the samples
or, where a model folds other axes into it, samples × pieces."""


@dataclass(frozen=True)
class OuterShape:
    """Sizes of a gradient Σ_t left_t ⊗ right_t: the number of terms and the lengths of both sides."""

    terms: int
    left: int
    right: int


class Rule(ABC):
    """Abstract: how one parameter's gradient follows from a call; all samples and several outputs at once."""

    @abstractmethod
    def prepare(self, call: Call, samples: int) -> Any:
        """What the gradient needs of the call's inputs."""

    @abstractmethod
    def gradients(self, prepared: Any, cotangents: Cotangents, part: slice) -> Float[Tensor, "samples outputs params"]:
        """Each sample's and output's gradient of the parameter's rows `part` (its first axis), flattened."""

    def write(
        self, prepared: Any, cotangents: Cotangents, part: slice, out: Float[Tensor, "samples outputs params"]
    ) -> None:
        """Put the gradients into `out`; a rule that can compute them in place saves a copy."""
        out.copy_(self.gradients(prepared, cotangents, part))

    def prepared_bytes(self, prepared: Any) -> int:
        """Memory that `prepared` takes beside the inputs; nothing where it only looks at them."""
        return 0

    @property
    def deferrable(self) -> bool:
        """Whether the gradient follows from the one input tensor and the cotangent, whenever it is asked for."""
        return False

    def outer_shape(self, prepared: Any) -> OuterShape | None:
        """Sizes of the outer products the gradient is a sum of, or None where it is not of that form."""
        return None

    def left(self, prepared: Any) -> Tensor:
        """The side that all outputs share: (samples, terms, features), or (samples, terms) of integer names."""
        raise NotImplementedError(f"{type(self).__name__} is not a sum of outer products.")

    def right(self, prepared: Any, cotangents: Cotangents) -> Float[Tensor, "samples outputs terms channels"]:
        """The side that comes from the output's gradient."""
        raise NotImplementedError(f"{type(self).__name__} is not a sum of outer products.")


def by_sample(cotangent: Tensor, samples: int) -> Float[Tensor, "samples outputs pieces *rest"]:
    """A cotangent (batch, outputs, …) with the pieces that a model folded into its batch axis behind the outputs."""
    if cotangent.shape[0] == samples:
        return cotangent.unsqueeze(2)
    return cotangent.unflatten(0, (samples, -1)).transpose(1, 2)
