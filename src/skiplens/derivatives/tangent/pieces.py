"""Pieces of the Jacobian: rows of one parameter, and the two forms in which all samples' gradients are kept."""

from dataclasses import dataclass

from skiplens.core.axes import Float, Tensor


@dataclass(frozen=True)
class Piece:
    """Some rows (first axis) of one parameter, to be contracted as `outer` products or as plain gradients."""

    parameter: str
    rows: slice
    outer: bool = False


@dataclass(frozen=True)
class Gradients:
    """The gradients themselves."""

    rows: Float[Tensor, "samples outputs params"]


@dataclass(frozen=True)
class OuterProducts:
    """Factors of gradients Σ_t left_t ⊗ right_t; an integer `left` names rows, which meet where they are equal."""

    left: Tensor  # (samples, terms, features), or (samples, terms) of integers
    right: Float[Tensor, "samples outputs terms channels"]


Factor = Gradients | OuterProducts
