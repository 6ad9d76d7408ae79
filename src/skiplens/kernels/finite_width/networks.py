"""The three families of random networks: residual, dense and vanilla, each with its depth and width.

All have independent weights of mean 0 and variance 1 and a first and a last linear layer, y⁰ = Wˢx/√d and f = Wᶠy/√n;
q = √2·relu. Their tangent kernel is homogeneous: its value at (x, x′) is ‖x‖‖x′‖/d times a function of the angle, and
the moments of this folder are those at ‖x‖² = d.
"""

import math
import sys
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction

import torch
from torch import Tensor

from skiplens.base.errors import InvalidInputError, pick, refuse_if

Number = int | float | Fraction

LARGEST_EXPONENT = math.log(sys.float_info.max)
_TRAINED = {
    "branches": (False, False),
    "branches_and_first": (True, False),
    "branches_and_last": (False, True),
    "all": (True, True),
}


@dataclass(frozen=True)
class _Sized:
    depth: int
    width: int

    def __post_init__(self) -> None:
        """Refuse sizes that no network has."""
        self._require_count("depth", self.depth)
        self._require_count("width", self.width)

    @staticmethod
    def _require_count(name: str, value: int) -> None:
        if isinstance(value, bool) or int(value) != value or value < 1:
            raise InvalidInputError(f"{name} must be a whole number of at least 1, got {value}.")


@dataclass(frozen=True)
class ResNet(_Sized):
    """y ← y + √(α/n)·W_m q(… √(α/n)·W_1 y): `depth` blocks whose branch has m matrices and m-1 ReLUs.

    Attributes:
        depth: Residual blocks (L).
        width: Units of every layer (n).
        branch_depth: Weight matrices of a branch (m); with one the network is linear.
        branch_scale: Scale of each matrix of a branch (α); a branch multiplies the squared norm by α^m.
    """

    branch_depth: int = 2
    branch_scale: Number = 0.1

    def __post_init__(self) -> None:
        """Refuse sizes and scales that no network has."""
        super().__post_init__()
        self._require_count("branch_depth", self.branch_depth)
        if not 0 <= self.branch_scale < float("inf"):
            raise InvalidInputError(
                f"branch_scale must be a finite number and not negative, got {self.branch_scale}. "
                "It is the variance of one step of a branch; 0 switches the branches off."
            )


@dataclass(frozen=True)
class DenseNet(_Sized):
    """y^l = W^l [q⁰, …, q^{l-1}] / √(n·l): every layer reads all earlier ones; the top layer is linear."""


@dataclass(frozen=True)
class Vanilla(_Sized):
    """y^l = q(W^l y^{l-1}/√n): a chain without skip connections."""


Network = ResNet | DenseNet | Vanilla


def trained_layers(network: Network, trained: str) -> range:
    """The layers that count as trained, from 0 (Wˢ) to depth + 1 (Wᶠ)."""
    first, last = trained_ends(trained)
    return range(0 if first else 1, network.depth + (2 if last else 1))


def trained_ends(trained: str) -> tuple[bool, bool]:
    """Whether the first layer Wˢ counts as trained, and whether the last layer Wᶠ does."""
    return pick(_TRAINED, trained, f"trained={trained!r} is not known.")


def as_written(number: Number) -> Fraction:
    """The rational number that a person means by `number`: 0.3 is 3/10 and not the nearest binary fraction."""
    return number if isinstance(number, Fraction) else Fraction(str(number))


def exact_gain(network: Network) -> Fraction:
    """The factor a = α^m by which a branch multiplies the mean squared norm; 0 where there is no skip."""
    return as_written(network.branch_scale) ** network.branch_depth if isinstance(network, ResNet) else Fraction(0)


def exp_or_infinity(exponent: float) -> float:
    """e^exponent, infinite where it is beyond the largest float."""
    return math.exp(exponent) if exponent < LARGEST_EXPONENT else math.inf


def require_layer(network: Network, layer: int, source: int | None) -> None:
    """Refuse a layer outside 1…depth, and a source that this layer does not read."""
    refuse_if(not 1 <= layer <= network.depth, f"layer must be between 1 and the depth {network.depth}, got {layer}.")
    if source is not None and not isinstance(network, DenseNet):
        raise InvalidInputError(f"Only a DenseNet has one matrix per source; leave source out, got {source}.")
    if source is not None and not 0 <= source < layer:
        raise InvalidInputError(f"Layer {layer} of a DenseNet reads the sources 0 to {layer - 1}, got {source}.")


@dataclass(frozen=True)
class WeightLaw:
    """How weights are drawn."""

    fourth_moment: float  # E w⁴ (c₄ in the paper; 3 for Gaussian weights)
    fill: Callable[[Tensor, torch.Generator], Tensor]  # overwrites a tensor with independent draws

    def draw(self, shape: tuple[int, ...], dtype: torch.dtype, generator: torch.Generator) -> Tensor:
        """Independent weights on the generator's device."""
        return self.fill(torch.empty(shape, dtype=dtype, device=generator.device), generator)


def weight_law(name: str) -> WeightLaw:
    """The law called ``"gaussian"``, ``"uniform"``, ``"rademacher"`` or ``"laplace"``."""
    return pick(_LAWS, name, f"There is no weight law {name!r}.")


def _laplace(out: Tensor, generator: torch.Generator) -> Tensor:
    """The difference of two exponential numbers of variance 1/2 each."""
    other = torch.empty_like(out).exponential_(2**0.5, generator=generator)
    return out.exponential_(2**0.5, generator=generator).sub_(other)


_LAWS = {
    "gaussian": WeightLaw(3.0, lambda out, generator: out.normal_(generator=generator)),
    "uniform": WeightLaw(1.8, lambda out, generator: out.uniform_(-(3**0.5), 3**0.5, generator=generator)),
    "rademacher": WeightLaw(1.0, lambda out, generator: out.bernoulli_(0.5, generator=generator).mul_(2).sub_(1)),
    "laplace": WeightLaw(6.0, _laplace),
}
