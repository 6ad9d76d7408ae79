"""A model as a list of layer descriptions: the main path in order, with residual blocks as one layer each."""

import math
from collections.abc import Callable, Hashable, Iterable, Iterator
from itertools import groupby
from typing import Any

import torch
from torch import Tensor, fx, nn
from torch.nn import functional as F

from skiplens.base.errors import InvalidInputError, did_you_mean
from skiplens.graph.blocks import ResidualBlock
from skiplens.graph.loss import loss_name
from skiplens.graph.network import part_function
from skiplens.graph.operations import MATRIX_PRODUCTS, REARRANGING
from skiplens.jacobians.hypotheses.descriptions import Description, ParallelBranches, ResidualLayer, Skip, Unrecognised
from skiplens.jacobians.hypotheses.facts import CostFacts
from skiplens.jacobians.hypotheses.parts import GraphView, affine_part, normalisation, other_part
from skiplens.jacobians.systems.costs import Cost, CrossEntropy, SquareCost
from skiplens.jacobians.systems.elementwise import NONLINEARITIES, Elementwise
from skiplens.zoo.macdonald2023 import BatchNormalise

_WHOLE_MODULES = (BatchNormalise, nn.Softsign)
"""Modules of several operations that are one layer."""


def describe_model(view: GraphView, generator: torch.Generator) -> tuple[Description, ...]:
    """The layers of a model from its input to its output; what is not recognised is named."""
    return _Walk(view, generator).chain(view.start, view.network.node(view.network.output), None)


class _Walk:
    def __init__(self, view: GraphView, generator: torch.Generator) -> None:
        self.view = view
        self.generator = generator

    def chain(self, start: fx.Node, end: fx.Node, parent: int | None) -> tuple[Description, ...]:
        """The descriptions from `start` (exclusive) to `end`; blocks directly below `parent` are one layer each."""
        nodes = self.view.between(start, end)
        blocks = {block.join: block for block in self.view.network.blocks if block.parent == parent}
        blocks = {join: block for join, block in blocks.items() if self.view.network.node(join) in nodes}
        inside = {node for block in blocks.values() for node in self._inside(block)}
        parts: list[Description] = []
        value = start
        for group in self._groups(node for node in nodes if node not in inside):
            block = blocks.get(group[-1].name)
            parts += [self._block(block)] if block and self._begins(block, value) else self._described(group, value)
            value = group[-1]
        return tuple(_merged(parts))

    def _groups(self, nodes: Iterable[fx.Node]) -> Iterator[list[fx.Node]]:
        """Single nodes, and the nodes of a module that is one layer together."""

        def key(node: fx.Node) -> str:
            return self.view.call(node) if isinstance(self.view.module(node), _WHOLE_MODULES) else node.name

        return (list(group) for _, group in groupby(nodes, key))

    def _inside(self, block: ResidualBlock) -> list[fx.Node]:
        start, join = self.view.network.node(block.input), self.view.network.node(block.join)
        return [node for node in self.view.between(start, join) if node is not join]

    def _begins(self, block: ResidualBlock, value: fx.Node) -> bool:
        return self.view.network.node(block.input) is value

    def _described(self, group: list[fx.Node], value: fx.Node) -> list[Description]:
        view, first, last = self.view, group[0], group[-1]
        module = view.module(first)
        if isinstance(module, BatchNormalise):
            return normalisation(view, first, value)
        if isinstance(module, nn.Softsign):
            return [Elementwise(NONLINEARITIES["softsign"], view.features(last), name=view.name(last))]
        if view.sources(last) != [value]:
            return [view.unrecognised(last, value, "several activations meet")]
        kind = view.operation(last)
        if kind in REARRANGING:
            return []
        return [affine_part(view, last, value)] if kind in MATRIX_PRODUCTS else other_part(view, last, value)

    def _block(self, block: ResidualBlock) -> ResidualLayer:
        skip = describe_skip(self.view, block, self.generator)
        return ResidualLayer(block.name, skip, self._branch(block))

    def _branch(self, block: ResidualBlock) -> tuple[Description, ...]:
        """The branch as a chain, or several chains that are added."""
        start, join = self.view.network.node(block.input), self.view.network.node(block.join)
        nodes = [self.view.network.node(addition.node) for addition in block.additions]
        ends = [node.args[addition.branch_arguments[0]] for node, addition in zip(nodes, block.additions, strict=True)]
        plain = all(len(addition.branch_arguments) == 1 for addition in block.additions)
        features = self.view.features(start), self.view.features(join)
        if not plain or any(node.kwargs for node in nodes) or not all(isinstance(end, fx.Node) for end in ends):
            return (Unrecognised(block.name, "a scaled or multiplied branch", *features),)
        chains = tuple(self.chain(start, end, block.index) for end in ends if isinstance(end, fx.Node))
        return chains[0] if len(chains) == 1 else (ParallelBranches(block.name, chains, *features),)


def _merged(parts: Iterable[Description]) -> Iterator[Description]:
    """Neighbours that are not recognised in the same module as one."""
    previous: Unrecognised | None = None
    for part in parts:
        if isinstance(part, Unrecognised) and previous is not None and _place(part) == _place(previous):
            what = previous.what if part.what in previous.what.split(", ") else f"{previous.what}, {part.what}"
            previous = Unrecognised(previous.name, what, previous.inputs, part.outputs)
            continue
        if previous is not None:
            yield previous
        previous = part if isinstance(part, Unrecognised) else None
        if previous is None:
            yield part
    if previous is not None:
        yield previous


def _place(part: Unrecognised) -> str:
    return part.name.rpartition(" in ")[2]


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


LossArgument = str | nn.Module | Callable[..., Any]

_FUNCTIONS: dict[Any, str] = {
    F.cross_entropy: "cross_entropy",
    F.mse_loss: "mse",
    F.binary_cross_entropy_with_logits: "binary_cross_entropy",
    F.l1_loss: "l1",
    F.huber_loss: "huber",
    F.smooth_l1_loss: "huber",
}

_MODULES: dict[Any, str] = {
    nn.CrossEntropyLoss: "cross_entropy",
    nn.MSELoss: "mse",
    nn.BCEWithLogitsLoss: "binary_cross_entropy",
    nn.L1Loss: "l1",
    nn.HuberLoss: "huber",
    nn.SmoothL1Loss: "huber",
}

_FACTS = {
    "cross_entropy": CostFacts("cross-entropy", True, True, True),
    "mse": CostFacts("mean squared error", True, True, True),
    "binary_cross_entropy": CostFacts("binary cross-entropy", True, True, True),
    "l1": CostFacts("absolute error", True, False, False),
    "huber": CostFacts("Huber loss", True, True, True),
}


def describe_cost(loss: LossArgument, outputs: tuple[int, ...], targets: Tensor) -> CostFacts:
    """What is known of a loss; with numbers where all targets are there and it is a plain mean."""
    name = _name(loss)
    if name is None:
        return CostFacts(loss_name(loss))
    facts = _FACTS[name]
    cost = _cost(name, outputs, targets) if _is_plain(loss) else None
    return CostFacts(facts.name, facts.is_convex, facts.has_lipschitz_gradient, facts.is_dominated, cost)


def _name(loss: LossArgument) -> str | None:
    if isinstance(loss, str):
        if loss not in _FACTS:
            raise InvalidInputError(f"There is no loss {loss!r}. {did_you_mean(loss, _FACTS)}")
        return loss
    known = _FUNCTIONS.get(loss) if isinstance(loss, Hashable) else None
    return known or _MODULES.get(type(loss))


def _is_plain(loss: LossArgument) -> bool:
    """Whether it is a mean without weights, smoothing and ignored targets."""
    if not isinstance(loss, nn.Module):
        return True
    options = vars(loss) | dict(loss.named_buffers())
    weighted = options.get("weight") is not None or options.get("label_smoothing", 0.0) != 0
    return not weighted and options.get("reduction", "mean") == "mean"


def _cost(name: str, outputs: tuple[int, ...], targets: Tensor) -> Cost | None:
    """The cost with its targets, as the theory writes it; None for forms that it does not have."""
    samples = targets.shape[0] if targets.ndim else 0
    if len(outputs) != 2 or not samples:
        return None
    if name == "mse" and targets.numel() == samples * outputs[1] and targets.is_floating_point():
        return SquareCost(targets.reshape(samples, -1).T.to("cpu", torch.float64), scale=2 / outputs[1])
    whole = not targets.is_floating_point() and targets.ndim == 1 and outputs[1] > 1
    if name == "cross_entropy" and whole and 0 <= int(targets.min()) and int(targets.max()) < outputs[1]:
        return CrossEntropy(targets.long().cpu(), outputs[1])
    return None
