"""Where chains of square matrices start."""

from collections.abc import Sequence

import torch

from skiplens.core.axes import Float, Tensor
from skiplens.core.randomness import Randomness
from skiplens.residual.initialisation import Law


def drawn_starts(
    law: Law, matrices: int, width: int, streams: Sequence[Randomness]
) -> Float[Tensor, "nets matrices width width"]:
    """The matrices W_1, …, W_D of one network for each stream, drawn by `law` in order of application, in float64."""
    return torch.stack([_chain(law, matrices, width, stream.torch()) for stream in streams])


def _chain(law: Law, matrices: int, width: int, generator: torch.Generator) -> Tensor:
    return torch.stack([law((width, width), generator) for _ in range(matrices)])
