"""What every function of path weights asks of its arguments."""

import math
from fractions import Fraction

import torch
from torch import Tensor

from skiplens.core.errors import InvalidInputError

Ratio = float | Tensor
"""A positive number, or a tensor of them of any shape."""


def ratio_tensor(depth_ratio: Ratio) -> Tensor:
    """The depth ratio β as a float64 tensor on its own device; refused unless positive and finite."""
    beta = torch.as_tensor(depth_ratio, dtype=torch.float64)
    good = torch.isfinite(beta) & (beta > 0)
    if not bool(good.all()):
        raise InvalidInputError(
            f"The depth ratio (beta) must be positive and finite; got {beta[~good].flatten()[0].item():g}. "
            "It is gate_probability * width * branch_scale / sqrt(distinct_weights): see BranchStatistics."
        )
    return beta


def check_depth(depth: int) -> int:
    """The depth p, refused unless it is a whole number of at least one layer."""
    if isinstance(depth, bool) or int(depth) != depth or depth < 1:
        raise InvalidInputError(
            f"The depth must be a whole number of layers, at least 1; got {depth!r}. "
            "A network with q residual blocks after its first layer has depth q + 1."
        )
    return int(depth)


def check_length(length: int, depth: int, name: str = "path length") -> int:
    """A path length, refused unless it lies between 1 and the depth."""
    if int(length) != length or not 1 <= length <= depth:
        raise InvalidInputError(
            f"The {name} must be a whole number from 1 to the depth {depth}; got {length!r}. "
            "A path through j residual branches has length j + 1."
        )
    return int(length)


def check_shortest(shortest: int) -> int:
    """The shortest path of a mixture: 1 as in the network, or 2 as in the paper's spin glass."""
    if shortest not in (1, 2):
        raise InvalidInputError(
            f"shortest must be 1 (the linear term is kept, as in the network) or 2 (dropped, as in the paper's "
            f"spin glass); got {shortest!r}."
        )
    return shortest


def check_positive(value: float | int | Fraction, name: str) -> float | int | Fraction:
    """A positive finite number, or an error that names it."""
    if not (math.isfinite(value) and value > 0):
        raise InvalidInputError(f"{name} must be positive and finite; got {float(value):g}.")
    return value
