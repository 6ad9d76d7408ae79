"""Every network of the zoo, small enough for a test, and inputs for it."""

from typing import Any

import torch
from torch import Tensor, nn

SMALL: dict[str, dict[str, Any]] = {
    "digits_resnet": {"width": 4},
    "ensemble_resnet": {"depth": 4, "width": 8, "scaling": "centred"},
    "preact_resnet": {"depth": 14, "width": 4},
    "preact_resnet18": {"width": 4},
    "preact_resnet18_avgskip": {"width": 4},
    "preact_resnet18_isoskip": {"width": 4},
    "preact_resnet50": {"width": 4},
    "preact_resnet50_avgskip": {"width": 4},
    "tangent_resnet": {"depth": 3, "width": 16},
    "tangent_densenet": {"depth": 3, "width": 16},
    "tangent_vanilla": {"depth": 3, "width": 16},
}


def sines(*shape: int) -> Tensor:
    """The numbers sin(k²), k = 1, 2, …, in row-first order: the theory note's Q, for any shape."""
    count = torch.Size(shape).numel()
    return torch.sin(torch.arange(1, count + 1, dtype=torch.float64).square()).reshape(shape)


def set_weights(network: nn.Module, weights: list[Tensor]) -> None:
    """Put these tensors into the parameters of `network`, in order."""
    for parameter, weight in zip(network.parameters(), weights, strict=True):
        assert parameter.shape == weight.shape
        parameter.data.copy_(weight)
