"""What can be chosen about operators of a loss beside the model, the loss and the data."""

from typing import Any, TypedDict

import torch

from skiplens.core.errors import InvalidInputError
from skiplens.core.nearest import did_you_mean
from skiplens.core.progress import Progress


class LossOptions(TypedDict, total=False):
    """Optional arguments of `loss_operator`."""

    progress: Progress
    """Told about each batch that is gone through; by default nobody is."""
    dtype: torch.dtype | None
    """What to compute in; by default the parameters' own dtype, or float32 if they have fewer bits."""
    budget: int | None
    """Bytes that graphs may take; by default half of what is free on the device."""


def check_options(options: Any) -> None:
    """Refuse unknown options by name."""
    known = LossOptions.__annotations__
    for name in options:
        if name not in known:
            raise InvalidInputError(f"There is no option {name!r}. {did_you_mean(name, known)}")
