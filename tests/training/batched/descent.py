"""Gradient descent by autograd, one network at a time: slow, obvious, and no code of the package."""

import torch
from torch import Tensor


def descend(loss, weights: Tensor, rate: float, epochs: int) -> tuple[list[Tensor], list[float], list[float]]:
    """Weights, loss and gradient norm before every update and after the last one."""
    points, losses, slopes = [], [], []
    for _ in range(epochs + 1):
        leaf = weights.detach().requires_grad_()
        value = loss(list(leaf))
        (gradient,) = torch.autograd.grad(value, leaf)
        points.append(leaf.detach())
        losses.append(value.item())
        slopes.append(gradient.norm().item())
        weights = leaf.detach() - rate * gradient
    return points, losses, slopes
