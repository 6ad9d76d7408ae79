"""The slow, obvious Jacobian: one backward pass a sample and output, each sample alone or all in one batch."""

import torch
from torch import Tensor, nn

from skiplens.graph.functional import main_output
from skiplens.graph.inputs import samples_of


def dense_jacobian(model: nn.Module, inputs, coupled: bool = False) -> Tensor:
    """(samples, outputs, parameters that require a gradient), in float64 if the model is."""
    samples = samples_of(inputs)
    chunk = samples.count if coupled else 1
    return torch.cat([_rows(model, batch) for _, batch in samples.chunks(chunk)])


def dense_kernel(model: nn.Module, inputs, other=None, coupled: bool = False) -> Tensor:
    """(samples, outputs, other samples, outputs)."""
    left = dense_jacobian(model, inputs, coupled)
    right = left if other is None else dense_jacobian(model, other, coupled)
    return torch.einsum("nop,mqp->nomq", left, right)


def _rows(model: nn.Module, batch) -> Tensor:
    parameters = [p for p in model.parameters() if p.requires_grad]
    outputs = main_output(model(*batch.args, **batch.kwargs)).reshape(batch.count, -1)
    rows = []
    for value in outputs.flatten():
        gradients = torch.autograd.grad(value, parameters, retain_graph=True, allow_unused=True)
        rows.append(torch.cat([_flat(g, p) for g, p in zip(gradients, parameters, strict=True)]))
    return torch.stack(rows).reshape(*outputs.shape, -1)


def _flat(gradient: Tensor | None, parameter: Tensor) -> Tensor:
    return torch.zeros(parameter.numel()) if gradient is None else gradient.flatten()
