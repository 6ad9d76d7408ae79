"""Symmetric laws of single weights, all of mean 0 and variance 1."""

from collections.abc import Callable
from dataclasses import dataclass

import torch

from skiplens.core.axes import Tensor
from skiplens.core.errors import InvalidInputError
from skiplens.core.nearest import did_you_mean


@dataclass(frozen=True)
class WeightLaw:
    """How weights are drawn.

    Attributes:
        name: Of the law.
        fourth_moment: E w⁴ (c₄ in the paper; 3 for Gaussian weights).
        fill: Overwrites a tensor with independent draws.
    """

    name: str
    fourth_moment: float
    fill: Callable[[Tensor, torch.Generator], Tensor]

    def draw(self, shape: tuple[int, ...], dtype: torch.dtype, generator: torch.Generator) -> Tensor:
        """Independent weights on the generator's device."""
        return self.fill(torch.empty(shape, dtype=dtype, device=generator.device), generator)


def weight_law(name: str) -> WeightLaw:
    """The law called ``"gaussian"``, ``"uniform"``, ``"rademacher"`` or ``"laplace"``."""
    if name not in _LAWS:
        raise InvalidInputError(f"There is no weight law {name!r}. {did_you_mean(str(name), _LAWS)}")
    return _LAWS[name]


def _gaussian(out: Tensor, generator: torch.Generator) -> Tensor:
    return out.normal_(generator=generator)


def _uniform(out: Tensor, generator: torch.Generator) -> Tensor:
    return out.uniform_(-(3**0.5), 3**0.5, generator=generator)


def _rademacher(out: Tensor, generator: torch.Generator) -> Tensor:
    return out.bernoulli_(0.5, generator=generator).mul_(2).sub_(1)


def _laplace(out: Tensor, generator: torch.Generator) -> Tensor:
    """The difference of two exponential numbers of variance 1/2 each."""
    other = torch.empty_like(out).exponential_(2**0.5, generator=generator)
    return out.exponential_(2**0.5, generator=generator).sub_(other)


_LAWS = {
    law.name: law
    for law in (
        WeightLaw("gaussian", 3.0, _gaussian),
        WeightLaw("uniform", 1.8, _uniform),
        WeightLaw("rademacher", 1.0, _rademacher),
        WeightLaw("laplace", 6.0, _laplace),
    )
}
