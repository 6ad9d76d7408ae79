"""Pre-activation networks from their parameters alone, in plain tensor algebra and `conv2d`."""

import torch
import torch.nn.functional as F
from torch import Tensor


def normalised_relu(x: Tensor) -> Tensor:
    """Batch norm with batch statistics, scale 1 and shift 0, and ReLU."""
    mean, variance = x.mean((0, 2, 3), keepdim=True), x.var((0, 2, 3), correction=0, keepdim=True)
    return torch.relu((x - mean) / torch.sqrt(variance + 1e-5))


def pooled(o: Tensor, stride: int, channels: int, kind: str) -> Tensor:
    """The pools of the theory note, written with reshapes instead of pooling functions."""
    n, c, height, width = o.shape
    patches = o.reshape(n, c, height // stride, stride, width // stride, stride).permute(0, 1, 2, 4, 3, 5)
    average = patches.sum((-1, -2)) / stride
    if kind == "average_pool":
        zeros = torch.zeros(n, (channels - c) // 2, *average.shape[2:])
        return torch.cat([zeros, average, zeros], dim=1)
    difference = (patches[..., 0] - patches[..., 1]).sum(-1) / stride
    return torch.cat([average, difference], dim=1)


def preact_features(h: Tensor, kernels: list[Tensor], strides: list[int], per_branch: int, kind: str) -> Tensor:
    """What blocks of these strides make of h; uses up the kernels."""
    strided = 0 if per_branch == 2 else 1
    for stride in strides:
        branch = h
        for index in range(per_branch):
            kernel = kernels.pop(0)
            step = stride if index == strided else 1
            branch = F.conv2d(normalised_relu(branch), kernel, stride=step, padding=kernel.shape[-1] // 2)
        if h.shape == branch.shape:
            h = h + branch
            continue
        o = normalised_relu(h)
        pool = 0 if kind == "projection" else pooled(o, stride, branch.shape[1], kind)
        h = branch + F.conv2d(o, kernels.pop(0), stride=stride) + pool
    return h
