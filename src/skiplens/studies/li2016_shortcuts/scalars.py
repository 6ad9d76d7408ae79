"""Single numbers as a measure returns them."""

import torch

from skiplens.core.axes import Tensor


def scalars(**values: float) -> dict[str, Tensor]:
    """The numbers as float64 tensors, whatever torch's default is."""
    return {name: torch.tensor(float(value), dtype=torch.float64) for name, value in values.items()}
