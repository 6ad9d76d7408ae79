"""Singular values of parts of the MNIST networks: of a whole batch, or of single images with frozen batch norm."""

import copy
from collections.abc import Callable
from functools import partial

import torch
from torch import nn

from skiplens.core.axes import Float, Tensor
from skiplens.derivatives.functional import transformable
from skiplens.derivatives.jacobian import Linearised, sample_jacobians, whole_jacobian
from skiplens.linalg.singular_values import all_singular_values

_COTANGENTS = 32
"""How many outputs are differentiated at a time; more win nothing."""


def batch_spectrum(function: Callable[[Tensor], Tensor], point: Tensor) -> Float[Tensor, " values"]:
    """The singular values of the Jacobian of a whole batch, descending; batch norm couples its images."""
    with torch.no_grad(), transformable():
        return all_singular_values(whole_jacobian(Linearised(function, point)))


def image_spectrum(module: nn.Module, point: Tensor, images: int) -> Float[Tensor, " values"]:
    """The singular values of the Jacobians of the first images, descending, with batch norm frozen.

    Its statistics are those of all images of `point`. Freezing moves the distribution of the singular values by at most
    two for each channel over their number.
    """
    with torch.no_grad(), transformable():
        frozen = with_frozen_norms(module, point)
        jacobians = sample_jacobians(Linearised(frozen, point[:images]), images)
        return all_singular_values(jacobians).flatten().sort(descending=True).values


def parameter_spectrum(network: nn.Module, images: Tensor) -> Float[Tensor, " values"]:
    """The singular values of the Jacobian of all outputs in all parameters, descending."""
    outputs, parameters = network(images), list(network.parameters())
    units = torch.eye(outputs.numel(), dtype=outputs.dtype).reshape(-1, *outputs.shape)
    rows = []
    for some in units.split(_COTANGENTS):
        parts = torch.autograd.grad(outputs, parameters, some, is_grads_batched=True, retain_graph=True)
        rows.append(torch.cat([part.flatten(1) for part in parts], dim=1))
    return all_singular_values(torch.cat(rows))


def with_frozen_norms(module: nn.Module, inputs: Tensor) -> nn.Module:
    """A copy of `module` whose batch norms have the statistics of `inputs`, whatever they are given."""
    frozen = copy.deepcopy(module)
    norms = [norm for norm in frozen.modules() if isinstance(norm, nn.BatchNorm1d | nn.BatchNorm2d)]
    hooks = [norm.register_forward_pre_hook(partial(_freeze, norm)) for norm in norms]
    with torch.no_grad():
        frozen(inputs)
    for hook in hooks:
        hook.remove()
    return frozen


def _freeze(norm: nn.BatchNorm1d | nn.BatchNorm2d, _: nn.Module, arguments: tuple[Tensor]) -> None:
    """Give `norm` the statistics of what it is about to normalise; torch's own would have the unbiased variance."""
    others = [axis for axis in range(arguments[0].ndim) if axis != 1]
    variance, mean = torch.var_mean(arguments[0], others, correction=0)
    norm.running_mean, norm.running_var, norm.track_running_stats = mean, variance, True
    norm.eval()
