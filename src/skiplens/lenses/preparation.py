"""From what a user has to what lenses look at: the first samples, and the model in a type fit to measure in."""

import copy
from typing import Any

import torch
from torch import nn

from skiplens.core.arguments import type_name
from skiplens.core.errors import InvalidInputError
from skiplens.core.untouched import untouched
from skiplens.data.batch import Batch, take
from skiplens.lenses.lens import Subject
from skiplens.residual.trial import try_call

COARSE = (torch.bfloat16, torch.float16)
"""With 8 or 11 bits a second derivative, a small singular value or a condition number is rounding."""

PASSES = 10
"""Forward passes for which all samples of a subject are needed at once."""


def prepared(model: nn.Module, data: Any, samples: int, name: str) -> Subject:
    """The first samples that can be afforded, and the model or a float32 copy of one in half precision.

    The model is called once, so that inputs which do not fit are one error here and not one of each lens.
    """
    batch = take(data, samples)
    types = sorted({type_name(tensor.dtype) for tensor in _tensors(model) if tensor.dtype in COARSE})
    notes: tuple[str, ...] = ()
    if types:
        model, batch = _in_float32(model), _in_float32_batch(batch)
        notes = (f"The model is in {' and '.join(types)}; a copy of it in float32 was measured.",)
    with untouched(model):
        try_call(model, batch.first(2).arguments())
    batch, cut = Subject(model, batch, name).few(samples, passes=PASSES)
    with untouched(model):
        try_call(model, batch.arguments())
    return Subject(model, batch, name, (*notes, *cut))


def _tensors(model: nn.Module) -> list[torch.Tensor]:
    return [*model.parameters(), *model.buffers()]


def _in_float32(model: nn.Module) -> nn.Module:
    try:
        fresh = copy.deepcopy(model)
    except Exception as error:
        raise InvalidInputError(
            f"The model is in half precision, which is too coarse to measure in, and cannot be copied ({error}). "
            "Hand in model.float()."
        ) from error
    for tensor in _tensors(fresh):
        tensor.grad = None
        if tensor.dtype in COARSE:
            tensor.data = tensor.data.float()
    return fresh


def _in_float32_batch(batch: Batch) -> Batch:
    return batch.map(lambda tensor: tensor.float() if tensor.dtype in COARSE else tensor)
