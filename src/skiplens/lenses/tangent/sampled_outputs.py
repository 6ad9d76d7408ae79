"""The tangent kernel of a model with very many outputs, from some of them drawn at random."""

from typing import Any

import torch
from torch import nn

from skiplens.core.axes import Float, Tensor
from skiplens.core.progress import Progress
from skiplens.data.batch import Inputs
from skiplens.derivatives import empirical_ntk
from skiplens.derivatives.outputs import main_output


def kernel_of_some_outputs(
    model: nn.Module, inputs: Inputs, chosen: Tensor, total: int, progress: Progress
) -> tuple[Float[Tensor, "samples samples"], Float[Tensor, "samples samples"]]:
    """An unbiased estimate of the kernel summed over all `total` outputs, and its standard error, entry by entry."""
    full = empirical_ntk(_Chosen(model, chosen), inputs, outputs="full", progress=progress)
    each = total * full.diagonal(dim1=1, dim2=3)  # samples × samples × outputs
    return each.mean(-1), each.std(-1) / each.shape[-1] ** 0.5


class _Chosen(nn.Module):
    """The model with the chosen entries of its flat output alone."""

    def __init__(self, model: nn.Module, chosen: Tensor) -> None:
        super().__init__()
        self.model, self.chosen = model, chosen
        self.training = model.training

    def forward(self, *positional: Any, **named: Any) -> Tensor:
        """The chosen entries of each sample's output."""
        return main_output(self.model(*positional, **named)).flatten(1)[:, self.chosen]


def draw_outputs(total: int, count: int, generator: torch.Generator) -> Tensor:
    """The numbers of `count` different outputs."""
    return torch.randperm(total, generator=generator)[:count]
