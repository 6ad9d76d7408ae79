"""Whitened digits: the ten leading principal components of MNIST and one-hot labels (the paper's appendix B)."""

from functools import cache
from typing import Literal, NamedTuple

import torch

from skiplens.core.axes import Float, Tensor
from skiplens.core.errors import DataError
from skiplens.data import ImageSet, fit_whitening, get, sample
from skiplens.theory.shortcut_hessian import SecondMoments, second_moments

Source = Literal["sample", "mnist"]
"""The 2,000 embedded digits, which are the first of MNIST, or all 60,000."""

WIDTH = 10
"""Of the networks: as many components as classes, since the shortcuts tie them to each other."""


class Digits(NamedTuple):
    """Whitened images and one-hot labels in float64."""

    inputs: Float[Tensor, "samples width"]
    targets: Float[Tensor, "samples width"]


@cache
def whitened_digits(source: Source = "mnist", samples: int | None = None) -> Digits:
    """The first `samples` training images (all if not given), whitened by themselves; kept for the next call."""
    digits = _images(source)
    images, labels = digits.images[:samples], digits.labels[:samples]
    targets = torch.nn.functional.one_hot(labels, WIDTH).double()
    return Digits(fit_whitening(images, WIDTH)(images), targets)


@cache
def digit_moments(source: Source = "mnist", samples: int | None = None) -> SecondMoments:
    """The second moments of the whitened digits; kept for the next call."""
    return second_moments(*whitened_digits(source, samples))


def _images(source: Source) -> ImageSet:
    if source == "sample":
        return sample()
    try:
        return get("mnist")
    except DataError as error:
        raise DataError(f"{error}\nOr fetch it: skiplens data get mnist. Then give the same command again.") from error
