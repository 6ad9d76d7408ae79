"""How many paths of each length a residual network has."""

import math

import torch
from torch import Tensor

from skiplens.core.axes import Float
from skiplens.core.errors import InvalidInputError
from skiplens.theory.path_weights.arguments import check_depth
from skiplens.theory.path_weights.binomial import log_binomial


def path_counts(depth: int, width: int, inputs: int = 1) -> list[int]:
    """The number of paths of length r = 1..p, exactly: inputs · C(p−1, r−1) · width^r.

    Args:
        depth: p, the layers.
        width: n, the units of every layer.
        inputs: d, the input features; 1 gives the counts γ_r, d the masses ψ_r = d γ_r.

    Examples:
        >>> path_counts(depth=4, width=2, inputs=3)
        [6, 36, 72, 48]
    """
    _check_sizes(width, inputs)
    blocks = check_depth(depth) - 1
    return [inputs * math.comb(blocks, branches) * width ** (branches + 1) for branches in range(depth)]


def log_path_counts(depth: int, width: int, inputs: int = 1) -> Float[Tensor, " lengths"]:
    """The log of the number of paths of length r = 1..p, for depths where the numbers themselves have no place."""
    _check_sizes(width, inputs)
    blocks = check_depth(depth) - 1
    even_odds = torch.ones((), dtype=torch.float64)
    branches = torch.arange(depth)
    log_choices = log_binomial(branches, blocks, even_odds) + blocks * math.log(2)
    return math.log(inputs) + log_choices + (branches + 1) * math.log(width)


def _check_sizes(width: int, inputs: int) -> None:
    if width < 1 or inputs < 1:
        raise InvalidInputError(f"Width and inputs must be at least 1; got width={width}, inputs={inputs}.")
