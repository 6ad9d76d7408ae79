"""Numbers of a model that the papers follow along training."""

import torch
from torch import nn

from skiplens.core.errors import InvalidInputError


def gradient_norm(model: nn.Module) -> float:
    """The norm of all gradients that the last backward pass left, as one vector."""
    gradients = [parameter.grad for parameter in model.parameters() if parameter.grad is not None]
    if not gradients:
        raise InvalidInputError("The model has no gradients; the norm is there during a training run only.")
    return float(torch.stack([gradient.double().norm() for gradient in gradients]).norm())


def mean_weight_norm(model: nn.Module) -> float:
    """The mean of the Frobenius norms of all weight matrices and convolution kernels."""
    weights = [parameter for parameter in model.parameters() if parameter.ndim >= 2]
    if not weights:
        raise InvalidInputError(f"{type(model).__name__} has no weight matrix, so there is no norm to take.")
    return float(torch.stack([weight.detach().double().norm() for weight in weights]).mean())
