"""Small models that are hard to look at without changing them: each maps six samples to two outputs."""

import random
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.utils import parametrizations, parametrize
from torch.utils.checkpoint import checkpoint

TARGETS = torch.tensor([0, 1, 0, 1, 1, 0])


def inputs() -> Tensor:
    """Six samples of four numbers."""
    return torch.randn(6, 4, generator=torch.Generator().manual_seed(1))


class Block(nn.Module):
    """x + tanh(f(x))."""

    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, x: Tensor) -> Tensor:
        return x + torch.tanh(self.inner(x))


def network(first: nn.Module, second: nn.Module | None = None) -> nn.Module:
    """Two residual blocks and a head."""
    return nn.Sequential(Block(first), Block(nn.Linear(4, 4) if second is None else second), nn.Linear(4, 2))


class Layer(nn.Linear):
    """A linear layer of width four with something done before its forward pass."""

    def __init__(self, before: Callable[["Layer", Tensor], Any]) -> None:
        super().__init__(4, 4)
        self.before = before
        self.register_buffer("scale", torch.ones(4))
        self.register_buffer("late", None)
        self.plain, self.count, self.log = torch.ones(4), 0, [0]

    def forward(self, x: Tensor) -> Tensor:
        changed = self.before(self, x)
        return super().forward(x if changed is None else changed) * self.scale * self.plain


class Square(torch.autograd.Function):
    """x² with a derivative of its own."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        ctx.save_for_backward(x)
        return x * x

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        return 2 * ctx.saved_tensors[0] * gradient


def _no_grad(change: Callable[[Layer], Any]) -> Callable[[Layer, Tensor], None]:
    def before(layer: Layer, x: Tensor) -> None:
        with torch.no_grad():
            change(layer)

    return before


def _assigns_data(layer: Layer, x: Tensor) -> None:
    layer.weight.data = torch.renorm(layer.weight.data, 2, 0, 0.1)


def _renews_weight(layer: Layer, x: Tensor) -> None:
    layer.weight = nn.Parameter(layer.weight.detach().clone())


def _makes_buffer(layer: Layer, x: Tensor) -> None:
    layer.late = x.detach().mean(0)
    layer.register_buffer("new", torch.zeros(2), persistent=False)


def _counts(layer: Layer, x: Tensor) -> None:
    layer.count += 1
    layer.log.append(layer.count)


def _differentiates(layer: Layer, x: Tensor) -> Tensor:
    with torch.enable_grad():
        inside = x.detach().requires_grad_()
        return x + torch.autograd.grad(inside.pow(3).sum(), inside)[0]


def _autocasts(layer: Layer, x: Tensor) -> Tensor:
    with torch.autocast("cpu", dtype=torch.bfloat16):
        return (x @ torch.eye(4)).to(x)


def _sets_gradient(layer: Layer, x: Tensor) -> None:
    layer.weight.grad = torch.ones_like(layer.weight)


class Sparse(nn.Module):
    """A product with a sparse buffer."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("graph", torch.eye(4).to_sparse())
        self.linear = nn.Linear(4, 4)

    def forward(self, x: Tensor) -> Tensor:
        return torch.sparse.mm(self.graph, self.linear(x).T).T


class Checkpointed(nn.Module):
    """A layer that is called again in the backward pass."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 4)

    def forward(self, x: Tensor) -> Tensor:
        return checkpoint(self.linear, x, use_reentrant=False)


def shared() -> nn.Module:
    """One layer in two blocks."""
    layer = nn.Linear(4, 4)
    return network(layer, layer)


def tied() -> nn.Module:
    """Two layers with one matrix."""
    model = network(nn.Linear(4, 4))
    model[1].inner.weight = model[0].inner.weight
    return model


def _repeated() -> nn.Module:
    block = Block(nn.Linear(4, 4))
    return nn.Sequential(block, nn.ModuleList([block])[0], block, nn.Linear(4, 2))


def _frozen() -> nn.Module:
    model = network(nn.Linear(4, 4))
    model[0].requires_grad_(False)
    return model


def _hooked() -> nn.Module:
    model = network(nn.Linear(4, 4))
    model[0].register_forward_hook(lambda module, args, output: output * 2)
    model[1].register_forward_pre_hook(lambda module, args: (args[0] + 1,))
    model[2].register_full_backward_hook(lambda module, inputs, outputs: None)
    model[2].weight.register_hook(lambda gradient: gradient * 1)
    return model


def _with_integers() -> nn.Module:
    model = network(nn.Linear(4, 4))
    model[0].register_parameter("steps", nn.Parameter(torch.arange(3), requires_grad=False))
    return model


def _with_gradients() -> nn.Module:
    model = network(nn.Linear(4, 4))
    model(inputs()).sum().backward()
    return model


def _with_nan() -> nn.Module:
    model = network(nn.Linear(4, 4))
    model[1].inner.weight.data[0, 0] = float("nan")
    return model


def _parametrized() -> nn.Module:
    model = network(parametrizations.orthogonal(nn.Linear(4, 4)), parametrizations.weight_norm(nn.Linear(4, 4)))
    parametrize.register_parametrization(model[2], "bias", nn.Tanh())
    return model


def layer(before: Callable[[Layer, Tensor], Any]) -> Callable[[], nn.Module]:
    """A network with that layer in its first block."""
    return lambda: network(Layer(before))


MODELS: dict[str, Callable[[], nn.Module]] = {
    "tied": tied,
    "shared": shared,
    "one block three times": _repeated,
    "lazy": lambda: network(nn.LazyLinear(4)),
    "makes buffers": layer(_makes_buffer),
    "resizes a buffer": layer(lambda module, x: module.scale.resize_(4).fill_(2.0)),
    "replaces a buffer": layer(lambda module, x: setattr(module, "scale", module.scale * 1.5)),
    "batch norm": lambda: network(nn.BatchNorm1d(4)),
    "spectral norm": lambda: network(torch.nn.utils.spectral_norm(nn.Linear(4, 4))),
    "weight norm": lambda: network(torch.nn.utils.weight_norm(nn.Linear(4, 4))),
    "parametrized": _parametrized,
    "spectral parametrization": lambda: network(parametrizations.spectral_norm(nn.Linear(4, 4))),
    "frozen": _frozen,
    "hooked": _hooked,
    "writes to the input": lambda: nn.Sequential(nn.ReLU(inplace=True), *network(nn.Linear(4, 4))),
    "dropout": lambda: network(nn.Dropout(0.5)),
    "draws with NumPy": layer(lambda module, x: x * float(np.random.rand())),  # noqa: NPY002
    "draws with Python": layer(lambda module, x: x * random.random()),
    "compiled": lambda: torch.compile(network(nn.Linear(4, 4)), backend="eager"),
    "meta": lambda: network(nn.Linear(4, 4)).to("meta"),
    "bfloat16": lambda: network(nn.Linear(4, 4)).bfloat16(),
    "autocast": layer(_autocasts),
    "own derivative": layer(lambda module, x: Square.apply(x)),
    "sparse": lambda: network(Sparse()),
    "differentiates": layer(_differentiates),
    "integer inputs": lambda: nn.Sequential(
        nn.Embedding(5, 4), nn.Flatten(), nn.Linear(16, 4), *network(nn.Linear(4, 4))
    ),
    "integer parameter": _with_integers,
    "assigns weight.data": layer(_assigns_data),
    "changes weight.data": layer(lambda module, x: (module.weight.data.mul_(0.99), None)[1]),
    "changes weight": layer(_no_grad(lambda module: module.weight.mul_(0.99))),
    "renews weight": layer(_renews_weight),
    "counts": layer(_counts),
    "writes to an attribute": layer(lambda module, x: (module.plain.add_(1.0), None)[1]),
    "sets its mode": layer(lambda module, x: (module.train(not module.training), None)[1]),
    "freezes itself": layer(lambda module, x: (module.weight.requires_grad_(False), None)[1]),
    "sets a gradient": layer(_sets_gradient),
    "checkpointed": lambda: network(Checkpointed()),
    "has gradients": _with_gradients,
    "nan": _with_nan,
    "script": lambda: torch.jit.trace(network(nn.Linear(4, 4)), inputs()),
    "no parameters": lambda: nn.Sequential(nn.Tanh(), nn.Flatten()),
}


REFUSED = {
    *(
        "lazy",
        "resizes a buffer",
        "replaces a buffer",
        "dropout",
        "draws with NumPy",
        "draws with Python",
        "meta",
        "nan",
    ),
    *("assigns weight.data", "changes weight.data", "changes weight", "renews weight", "writes to an attribute"),
    *("script", "no parameters", "spectral norm", "spectral parametrization", "freezes itself"),
}
"""Models that a call may refuse; all others are measured by the quick calls."""


def made(name: str) -> tuple[nn.Module, tuple[Tensor, Tensor]]:
    """The model of that name with the same weights each time, and its data."""
    torch.manual_seed(0)
    model = MODELS[name]()
    given = inputs()
    if name == "integer inputs":
        given = torch.arange(24).reshape(6, 4) % 5
    if name == "bfloat16":
        given = given.bfloat16()
    if name == "meta":
        given = given.to("meta")
    return model, (given, TARGETS.to(given.device))
