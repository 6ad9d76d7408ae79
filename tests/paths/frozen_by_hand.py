"""Networks evaluated by hand, frozen and with each branch times t: the oracle of path polynomials."""

import itertools

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from skiplens.graph.dissect import dissect
from skiplens.paths.forward import PathOrders, expand_signal
from skiplens.paths.plan import frozen_plan


def coefficients(model: nn.Module, inputs, most: int | None = None) -> Tensor:
    """The stack under test."""
    network = dissect(model, inputs)
    return expand_signal(frozen_plan(network, network.node(network.output)), PathOrders(most))


def polynomial(stack: Tensor, t: float) -> Tensor:
    """Σ c_r t^r."""
    return sum(t**r * coefficient for r, coefficient in enumerate(stack))


class Perceptrons(nn.Module):
    """x + V relu(W x + b) + c, block after block, with a linear head."""

    def __init__(self, depth: int, width: int = 3, hidden: int = 4) -> None:
        super().__init__()
        self.first = nn.ModuleList(nn.Linear(width, hidden) for _ in range(depth))
        self.second = nn.ModuleList(nn.Linear(hidden, width) for _ in range(depth))
        self.head = nn.Linear(width, 2)

    def forward(self, x: Tensor) -> Tensor:
        for first, second in zip(self.first, self.second, strict=True):
            x = x + second(F.relu(first(x)))
        return self.head(x)

    def enumerated(self, x: Tensor) -> Tensor:
        """The sum over all subsets of r blocks of the product of their frozen matrices, for one sample and each r."""
        matrices = []
        h = x
        for first, second in zip(self.first, self.second, strict=True):
            mask = (first(h) > 0).to(x)
            product = second.weight @ (mask[:, None] * first.weight)
            shift = second.weight @ (mask * first.bias) + second.bias
            matrices.append(_with_one(product, shift))  # a last coordinate that is always one carries the biases
            h = h + second(F.relu(first(h)))
        start = torch.cat([x, x.new_ones(1)])
        total = x.new_zeros(len(matrices) + 1, len(start))
        for chosen in itertools.product((False, True), repeat=len(matrices)):
            state = start
            for matrix, used in zip(matrices, chosen, strict=True):
                state = matrix @ state if used else state
            total[sum(chosen)] += state
        result = total[:, :-1] @ self.head.weight.T
        result[0] += self.head.bias
        return result


def _with_one(product: Tensor, shift: Tensor) -> Tensor:
    top = torch.cat([product, shift[:, None]], 1)
    return torch.cat([top, top.new_zeros(1, top.shape[1])])


def frozen_norm(norm: nn.Module, x: Tensor, z: Tensor) -> Tensor:
    """The norm of x applied to z: scale of x, centring of z where the statistics are the batch's own."""
    shape = (1, -1, 1, 1)
    weight, bias = norm.weight.view(shape), norm.bias.view(shape)
    if norm.training:
        scale = (x.var((0, 2, 3), unbiased=False) + norm.eps).rsqrt().view(shape)
        return (z - z.mean((0, 2, 3), keepdim=True)) * scale * weight + bias
    scale = (norm.running_var + norm.eps).rsqrt().view(shape)
    return (z - norm.running_mean.view(shape)) * scale * weight + bias


def frozen_relu(x: Tensor, z: Tensor) -> Tensor:
    return (x > 0) * z


def post_activation_at(blocks, x: Tensor, z: Tensor, t: float) -> Tensor:
    """tests.networks.PostActivation after each other: x runs as it is, z frozen and with branches times t."""
    for block in blocks:
        xs, zs = [x], [z]

        def push(true: Tensor, frozen: Tensor, xs=xs, zs=zs) -> None:
            xs.append(true)
            zs.append(frozen)

        for conv, norm, active in ((block.conv1, block.bn1, True), (block.conv2, block.bn2, False)):
            u, w = conv(xs[-1]), conv(zs[-1])
            n = batch_normed(norm, u)
            push(n, frozen_norm(norm, u, w))
            if active:
                push(F.relu(n), frozen_relu(n, zs[-1]))
        shortcut = block.shortcut if block.shortcut is not None else nn.Identity()
        joined = shortcut(x) + xs[-1]
        z = frozen_relu(joined, shortcut(z) + t * zs[-1])
        x = F.relu(joined)
    return z


def batch_normed(norm: nn.Module, x: Tensor) -> Tensor:
    """Batch norm without the change of its running statistics."""
    return F.batch_norm(
        x,
        None if norm.training else norm.running_mean,
        None if norm.training else norm.running_var,
        norm.weight,
        norm.bias,
        norm.training,
        0.0,
        norm.eps,
    )
