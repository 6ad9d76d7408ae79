"""Gradients as they are: the plainest form in which a piece of the Jacobian is kept."""

from dataclasses import dataclass

from skiplens.core.axes import Float, Tensor


@dataclass(frozen=True)
class Gradients:
    """The gradients themselves."""

    rows: Float[Tensor, "samples outputs params"]
