"""What a shortcut of a model is: linear or not, and its singular values."""

import math
from collections.abc import Callable

import torch
from torch import Tensor

from skiplens.lenses.jacobians.hypotheses.view import GraphView
from skiplens.residual.block import ResidualBlock
from skiplens.residual.parts import part_function
from skiplens.theory.hypotheses import Skip

DENSE_FEATURES = 1024
"""Up to so many features the matrix of a shortcut is formed; larger ones are probed with random vectors."""

Function = Callable[[Tensor], Tensor]


def describe_skip(view: GraphView, block: ResidualBlock, generator: torch.Generator) -> Skip:
    """The description of a block's shortcut."""
    join, start = view.network.node(block.join), view.network.node(block.input)
    inputs, outputs = view.features(start), view.features(join)
    kind, trained = block.shortcut.kind, _trained(view, block)
    if kind == "identity":
        return Skip("identity", inputs, outputs, smallest=1.0, largest=1.0)
    if trained:
        return Skip(kind, inputs, outputs, parameters=trained)
    shortcut, like = part_function(view.network, block, "shortcut"), torch.zeros_like(start.meta["val"], device="cpu")
    return _measured(shortcut, like.to(_device(view)), Skip(kind, inputs, outputs), generator)


def _measured(shortcut: Function, like: Tensor, skip: Skip, generator: torch.Generator) -> Skip:
    draw = torch.randn((3, *like.shape), generator=generator, device=generator.device, dtype=torch.float64).to(like)
    with torch.no_grad():
        if not _is_linear(shortcut, draw):
            return Skip(skip.what, skip.inputs, skip.outputs, is_linear=False)
        if max(skip.inputs, skip.outputs) > DENSE_FEATURES:
            deviation = _deviation(shortcut, draw[0], generator, tall=skip.outputs > skip.inputs)
            return Skip(skip.what, skip.inputs, skip.outputs, deviation=_snapped(deviation, like, at=0.0))
        values = torch.linalg.svdvals(_matrix(shortcut, like, skip.inputs).double())
    smallest, largest = (_snapped(float(value), like, at=1.0) for value in (values[-1], values[0]))
    return Skip(skip.what, skip.inputs, skip.outputs, smallest=smallest, largest=largest)


def _is_linear(shortcut: Function, draw: Tensor) -> bool:
    """Whether f(x + 2 y) = f(x) + 2 f(y), which no other map does at random points, and samples do not mix."""
    x, y, _ = draw
    together, apart = shortcut(x + 2 * y), shortcut(x) + 2 * shortcut(y)
    first = torch.zeros_like(x)
    first[0] = x[0]
    alone = shortcut(first)[1:]
    scale = apart.abs().max() + x.abs().max()
    error = (together - apart).abs().max() + (alone.abs().max() if alone.numel() else 0.0)
    return bool(error <= 1e3 * torch.finfo(x.dtype).eps * scale)


def _matrix(shortcut: Function, like: Tensor, inputs: int) -> Tensor:
    """The matrix on one sample: as many unit vectors at once as there are samples."""
    samples = like.shape[0]
    basis = torch.eye(inputs, dtype=like.dtype, device=like.device)
    padded = torch.cat([basis, basis.new_zeros(-inputs % samples, inputs)])
    images = [shortcut(chunk.reshape(like.shape)).flatten(1) for chunk in padded.split(samples)]
    return torch.cat(images)[:inputs].T


def _deviation(shortcut: Function, x: Tensor, generator: torch.Generator, tall: bool) -> float:
    """|I Iᵀ u − u|/|u| of a random u (|Iᵀ I x − x|/|x| for a tall I); almost surely zero only for an isometry."""
    with torch.enable_grad():
        point = x.detach().requires_grad_()
        value = shortcut(point)
        drawn = torch.randn(value.shape, generator=generator, device=generator.device, dtype=torch.float64).to(x)
        back = torch.autograd.grad(value, point, value.detach() if tall else drawn)[0]
    before, after = (x, back) if tall else (drawn, shortcut(back))
    return float((after - before).norm() / before.norm())


def _snapped(value: float, like: Tensor, at: float) -> float:
    """The value, or `at` where the model's own precision cannot tell them apart."""
    return at if abs(value - at) <= 32 * torch.finfo(like.dtype).eps else value


def _trained(view: GraphView, block: ResidualBlock) -> int:
    return sum(math.prod(view.network.model.get_parameter(name).shape) for name in block.shortcut.parameters)


def _device(view: GraphView) -> torch.device:
    leaves = view.network.inputs.leaves()
    return next((leaf.device for leaf in leaves if isinstance(leaf, Tensor)), torch.device("cpu"))
