"""A model as a list of layer descriptions: the main path in order, with residual blocks as one layer each."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from itertools import groupby
from typing import Any

import torch
from torch import Tensor, fx, nn
from torch.nn import functional as F

from skiplens.base.errors import InvalidInputError, did_you_mean
from skiplens.graph.blocks import ResidualBlock
from skiplens.graph.loss import Loss, loss_name
from skiplens.graph.network import part_function
from skiplens.graph.operations import MATRIX_PRODUCTS, REARRANGING, operation
from skiplens.jacobians.hypotheses import descriptions
from skiplens.jacobians.hypotheses.descriptions import CostFacts, Description, ResidualLayer, Skip, Unrecognised
from skiplens.jacobians.hypotheses.parts import GraphView, affine_part, normalisation, other_part
from skiplens.jacobians.systems.costs import Cost, CrossEntropy, SquareCost
from skiplens.jacobians.systems.elementwise import NONLINEARITIES, Elementwise
from skiplens.zoo.macdonald2023 import BatchNormalise

_WHOLE_MODULES = (BatchNormalise, nn.Softsign)  # modules of several operations that are one layer
DENSE_FEATURES = 1024  # up to so many the matrix of a shortcut is formed; larger ones are probed with random vectors
Function = Callable[[Tensor], Tensor]


def describe_model(view: GraphView, generator: torch.Generator) -> tuple[Description, ...]:
    """The layers of a model from its input to its output; what is not recognised is named."""
    return _Walk(view, generator).chain(view.start, view.network.node(view.network.output), None)


@dataclass(frozen=True)
class _Walk:
    view: GraphView
    generator: torch.Generator

    def chain(self, start: fx.Node, end: fx.Node, parent: int | None) -> tuple[Description, ...]:
        """The descriptions from `start` (exclusive) to `end`; blocks directly below `parent` are one layer each."""
        view, network = self.view, self.view.network
        nodes = view.between(start, end)
        blocks = {block.join: block for block in network.blocks if block.parent == parent}
        blocks = {join: block for join, block in blocks.items() if network.node(join) in nodes}

        def layer_of(node: fx.Node) -> str:
            return view.call(node) if isinstance(view.module(node), _WHOLE_MODULES) else node.name

        inside = set[fx.Node]()
        for block in blocks.values():
            join = network.node(block.join)
            inside.update(node for node in view.between(network.node(block.input), join) if node is not join)
        parts, value = list[Description](), start
        for _, one_layer in groupby((node for node in nodes if node not in inside), layer_of):
            group = list(one_layer)
            found = blocks.get(group[-1].name)
            if found and network.node(found.input) is value:
                skip = describe_skip(view, found, self.generator)
                parts.append(ResidualLayer(found.name, skip, self._branch(found)))
            else:
                parts += self._described(group, value)
            value = group[-1]
        return tuple(_merged(parts))

    def _described(self, group: list[fx.Node], value: fx.Node) -> list[Description]:
        view, first, last = self.view, group[0], group[-1]
        module, kind = view.module(first), operation(last)
        if isinstance(module, BatchNormalise):
            return normalisation(view, first, value)
        if isinstance(module, nn.Softsign):
            return [Elementwise(NONLINEARITIES["softsign"], view.features(last), name=view.name(last))]
        if view.sources(last) != [value]:
            return [view.unrecognised(last, value, "several activations meet")]
        if kind in REARRANGING:
            return []
        return [affine_part(view, last, value)] if kind in MATRIX_PRODUCTS else other_part(view, last, value)

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
        return chains[0] if len(chains) == 1 else (descriptions.ParallelBranches(block.name, chains, *features),)


def _merged(parts: Iterable[Description]) -> list[Description]:
    """Neighbours that are not recognised in the same module as one."""

    def place(part: Unrecognised) -> str:
        return part.name.rpartition(" in ")[2]

    found: list[Description] = []
    for part in parts:
        last = found[-1] if found else None
        if isinstance(part, Unrecognised) and isinstance(last, Unrecognised) and place(part) == place(last):
            what = last.what if part.what in last.what.split(", ") else f"{last.what}, {part.what}"
            found[-1] = Unrecognised(last.name, what, last.inputs, part.outputs)
        else:
            found.append(part)
    return found


def describe_skip(view: GraphView, block: ResidualBlock, generator: torch.Generator) -> Skip:
    """The description of a block's shortcut."""
    network, start = view.network, view.network.node(block.input)
    skip = Skip(block.shortcut.kind, view.features(start), view.features(network.node(block.join)))
    if skip.what == "identity":
        return replace(skip, smallest=1.0, largest=1.0)
    trained = sum(network.model.get_parameter(name).numel() for name in block.shortcut.parameters)
    if trained:
        return replace(skip, parameters=trained)
    tensors = [leaf for leaf in network.inputs.leaves() if isinstance(leaf, Tensor)]
    like = torch.zeros_like(start.meta["val"], device="cpu").to(tensors[0].device if tensors else "cpu")
    shape = (view.samples, skip.inputs) if view.is_folded(tuple(like.shape)) else tuple(like.shape)
    shortcut = part_function(network, block, "shortcut")
    return _measured(
        lambda x: shortcut(x.reshape(like.shape)).reshape(len(x), -1), like.reshape(shape), skip, generator
    )


def _measured(shortcut: Function, like: Tensor, skip: Skip, generator: torch.Generator) -> Skip:
    def snapped(value: float, at: float) -> float:
        """The value, or `at` where the model's own precision cannot tell them apart."""
        return at if abs(value - at) <= 32 * torch.finfo(like.dtype).eps else value

    draw = torch.randn((3, *like.shape), generator=generator, device=generator.device, dtype=torch.float64).to(like)
    with torch.no_grad():
        if not _is_linear(shortcut, draw):
            return replace(skip, is_linear=False)
        if max(skip.inputs, skip.outputs) > DENSE_FEATURES:
            deviation = _deviation(shortcut, draw[0], generator, tall=skip.outputs > skip.inputs)
            return replace(skip, deviation=snapped(deviation, at=0.0))
        # The matrix on one sample: as many unit vectors at once as there are samples.
        basis = torch.eye(skip.inputs, dtype=like.dtype, device=like.device)
        padded = torch.cat([basis, basis.new_zeros(-skip.inputs % len(like), skip.inputs)])
        images = [shortcut(chunk.reshape(like.shape)).flatten(1) for chunk in padded.split(len(like))]
        values = torch.linalg.svdvals(torch.cat(images)[: skip.inputs].T.double())
    return replace(skip, smallest=snapped(float(values[-1]), at=1.0), largest=snapped(float(values[0]), at=1.0))


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


def _deviation(shortcut: Function, x: Tensor, generator: torch.Generator, tall: bool) -> float:
    """|I Iᵀ u − u|/|u| of a random u (|Iᵀ I x − x|/|x| for a tall I); almost surely zero only for an isometry."""
    with torch.enable_grad():
        point = x.detach().requires_grad_()
        value = shortcut(point)
        drawn = torch.randn(value.shape, generator=generator, device=generator.device, dtype=torch.float64).to(x)
        back = torch.autograd.grad(value, point, value.detach() if tall else drawn)[0]
    before, after = (x, back) if tall else (drawn, shortcut(back))
    return float((after - before).norm() / before.norm())


_COSTS: dict[str, tuple[CostFacts, tuple[Any, ...]]] = {
    "cross_entropy": (CostFacts("cross-entropy", True, True, True), (F.cross_entropy, nn.CrossEntropyLoss)),
    "mse": (CostFacts("mean squared error", True, True, True), (F.mse_loss, nn.MSELoss)),
    "binary_cross_entropy": (
        CostFacts("binary cross-entropy", True, True, True),
        (F.binary_cross_entropy_with_logits, nn.BCEWithLogitsLoss),
    ),
    "l1": (CostFacts("absolute error", True, False, False), (F.l1_loss, nn.L1Loss)),
    "huber": (
        CostFacts("Huber loss", True, True, True),
        (F.huber_loss, nn.HuberLoss, F.smooth_l1_loss, nn.SmoothL1Loss),
    ),
}
"""Losses by name: what is known of them, and their functions and modules in torch."""


def describe_cost(loss: Loss, outputs: tuple[int, ...], targets: Tensor) -> CostFacts:
    """What is known of a loss; with numbers where all targets are there and it is a plain mean."""
    if isinstance(loss, str) and loss not in _COSTS:
        raise InvalidInputError(f"There is no loss {loss!r}. {did_you_mean(loss, _COSTS)}")
    torch_names = {id(known): name for name, (_, in_torch) in _COSTS.items() for known in in_torch}
    name = loss if isinstance(loss, str) else torch_names.get(id(loss)) or torch_names.get(id(type(loss)))
    if name is None:
        return CostFacts("the model's own loss" if loss is None else loss_name(loss))
    is_plain = True  # a mean without weights, smoothing and ignored targets
    if isinstance(loss, nn.Module):
        options = vars(loss) | dict(loss.named_buffers())
        weighted = options.get("weight") is not None or options.get("label_smoothing", 0.0) != 0
        is_plain = not weighted and options.get("reduction", "mean") == "mean"
    return replace(_COSTS[name][0], cost=_cost(name, outputs, targets) if is_plain else None)


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
