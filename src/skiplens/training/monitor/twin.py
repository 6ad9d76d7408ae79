"""A model of few bits is looked at through a copy in float32 that follows it."""

import copy
from itertools import chain

import torch
from torch import nn

_FEW_BITS = (torch.bfloat16, torch.float16)


def has_few_bits(model: nn.Module) -> bool:
    """Whether a parameter has fewer bits than float32."""
    return any(parameter.dtype in _FEW_BITS for parameter in model.parameters())


def float_twin(model: nn.Module) -> nn.Module:
    """A copy of the model in float32, without gradients."""
    twin = copy.deepcopy(model).float()
    twin.zero_grad(set_to_none=True)
    return twin


@torch.no_grad()
def bring_up_to_date(twin: nn.Module, model: nn.Module) -> None:
    """Copy the values of the model, and its device, to its twin."""
    device = next(iter(model.parameters())).device
    twin.to(device)
    ours, theirs = (chain(module.parameters(), module.buffers()) for module in (twin, model))
    for own, value in zip(ours, theirs, strict=True):
        own.copy_(value)
