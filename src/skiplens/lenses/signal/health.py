"""What makes every other number doubtful: values that are not finite, dropout, chance, statistics never learned."""

import torch
from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm

from skiplens.core.arguments import Arguments
from skiplens.core.axes import Tensor
from skiplens.residual import ResidualNetwork
from skiplens.residual.operations import ATTENTION, drops_at_random, operation
from skiplens.residual.trial import try_call

_DROPOUT_OF_ATTENTION = 4  # its place among the arguments of scaled_dot_product_attention


def repeat_difference(model: nn.Module, arguments: Arguments) -> float:
    """Largest difference between the outputs of two calls, relative to the largest output; 0 if they agree."""
    first, second = try_call(model, arguments), try_call(model, arguments)
    return max((_difference(first[name], second[name]) for name in first), default=0.0)


def dropout_modules(network: ResidualNetwork) -> tuple[str, ...]:
    """Modules whose dropout is switched on; '' never appears, the model itself is called by its class."""
    found = dict.fromkeys(
        card.module or type(network.model).__name__
        for card, node in zip(network.cards, network.graph.nodes, strict=True)
        if node.op == "call_function" and (_drops(node) or _attends_with_dropout(node))
    )
    return tuple(found)


def fresh_norms(model: nn.Module) -> tuple[str, ...]:
    """Batch norms that use running statistics which no batch has ever updated."""
    return tuple(
        name
        for name, module in model.named_modules()
        if isinstance(module, _BatchNorm)
        and not module.training
        and module.num_batches_tracked is not None
        and int(module.num_batches_tracked) == 0
    )


def broken_tensors(model: nn.Module, arguments: Arguments) -> tuple[str, ...]:
    """Parameters, buffers and inputs that hold a value that is not finite."""
    named: list[tuple[str, Tensor]] = [(f"parameter {name}", tensor) for name, tensor in model.named_parameters()]
    named += [(f"buffer {name}", tensor) for name, tensor in model.named_buffers()]
    fed = [leaf for leaf in arguments.leaves() if isinstance(leaf, torch.Tensor)]
    named += [(f"input {number}", tensor) for number, tensor in enumerate(fed)]
    return tuple(name for name, tensor in named if tensor.is_floating_point() and not bool(tensor.isfinite().all()))


def _difference(first: Tensor, second: Tensor) -> float:
    if not first.is_floating_point():
        return float(not torch.equal(first, second))
    scale = float(first.abs().nan_to_num(0, 0, 0).max()) if first.numel() else 0.0
    gap = (first - second).abs().nan_to_num(0, 0, 0)
    return float(gap.max()) / scale if scale > 0 and gap.numel() else 0.0


def _drops(node: torch.fx.Node) -> bool:
    return drops_at_random(node) and bool(node.args[1] != 0)


def _attends_with_dropout(node: torch.fx.Node) -> bool:
    place = _DROPOUT_OF_ATTENTION
    if operation(node) not in ATTENTION:
        return False
    rate = node.args[place] if len(node.args) > place else node.kwargs.get("dropout_p", 0.0)
    return isinstance(rate, float) and rate > 0
