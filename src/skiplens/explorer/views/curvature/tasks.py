"""Small tasks for linear networks: whitened inputs and targets of the same width."""

from functools import lru_cache
from typing import Literal, get_args

import torch
import torch.nn.functional as F
from torch import Tensor

from skiplens.core.errors import InvalidInputError
from skiplens.core.randomness import Randomness
from skiplens.data import fit_whitening, sample
from skiplens.data.images import as_floats
from skiplens.residual.initialisation import orthogonal_weights, xavier_weights

TaskName = Literal["digits", "random", "rotation", "near"]

_PIXELS = 4  # of a side of the windows that digits are averaged over: 7 × 7 pixels whiten in no time
_NEAR = 0.3  # how far the map of the task "near" is from the identity


@lru_cache(maxsize=32)
def task(name: TaskName, width: int) -> tuple[Tensor, Tensor]:
    """Inputs and targets, (samples, width) each; the inputs have the identity as their second moment.

    Args:
        name: ``"digits"``: which of the first `width` digits an image shows, told from so many whitened components.
            ``"random"``: targets are a random linear map of the inputs. ``"rotation"``: the map only turns them.
            ``"near"``: the map is close to the identity, which is what a network of shortcuts starts as.
        width: Features of an input, and of a target.
    """
    if name == "digits":
        return _digits(width)
    inputs = width**0.5 * torch.eye(width, dtype=torch.float64)  # a few inputs whose second moment is the identity
    return inputs, inputs @ _map(name, width).T


def _digits(width: int) -> tuple[Tensor, Tensor]:
    digits = sample()
    chosen = digits.labels < width
    images = F.avg_pool2d(as_floats(digits.images[chosen], torch.float64), _PIXELS)
    inputs = fit_whitening(images, width)(images)
    return inputs, F.one_hot(digits.labels[chosen], width).to(inputs)


def _map(name: str, width: int) -> Tensor:
    generator, shape = Randomness(0).child("task", name, width).torch(), (width, width)
    if name == "random":
        return xavier_weights(shape, generator)
    if name == "rotation":
        return orthogonal_weights(shape, generator)
    if name == "near":
        return torch.eye(width, dtype=torch.float64) + _NEAR * xavier_weights(shape, generator)
    raise InvalidInputError(f"There is no task {name!r}; choose one of {', '.join(get_args(TaskName))}.")
