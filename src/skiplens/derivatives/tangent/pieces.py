"""Pieces of the Jacobian: rows of one parameter, and the forms in which all samples' gradients are kept."""

from dataclasses import dataclass
from typing import Literal

from skiplens.core.axes import Float, Tensor
from skiplens.derivatives.tangent.deferred import Deferred
from skiplens.derivatives.tangent.gradients import Gradients

Form = Literal["gradients", "outer", "deferred"]


@dataclass(frozen=True)
class Piece:
    """Some rows (first axis) of one parameter, and the form in which their gradients are kept."""

    parameter: str
    rows: slice
    form: Form = "gradients"


@dataclass(frozen=True)
class OuterProducts:
    """Factors of gradients Σ_t left_t ⊗ right_t; an integer `left` names rows, which meet where they are equal."""

    left: Tensor  # (samples, terms, features), or (samples, terms) of integers
    right: Float[Tensor, "samples outputs terms channels"]


Factor = Gradients | OuterProducts | Deferred
