"""The networks that are trained: nine families with good and bad starts, norms, scales and depths."""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from benchmarks.trainability.tasks import CHARACTERS, CONTEXT

PIXELS = 14 * 14
CLASSES = 10
SCORES = CHARACTERS + 1
ACTIVATIONS: dict[str, Callable[[], nn.Module]] = {
    "relu": nn.ReLU,
    "tanh": nn.Tanh,
    "gelu": nn.GELU,
    "sigmoid": nn.Sigmoid,
    "silu": nn.SiLU,
    "leaky": lambda: nn.LeakyReLU(0.1),
    "linear": nn.Identity,
}
CRITICAL = {"relu": math.sqrt(2), "tanh": 1.0, "gelu": math.sqrt(2), "sigmoid": 4.0, "silu": 1.6, "leaky": 1.41}


@dataclass(frozen=True)
class Network:
    """A network to train: `build()` draws it from torch's generator."""

    name: str
    family: str
    task: str
    build: Callable[[], nn.Module]


def draw(module: nn.Module, gain: float | None, kind: str = "normal") -> None:
    """Draw all matrices and filters anew with variance gain²/inputs, biases zero; None leaves torch's default."""
    if gain is None:
        return
    for layer in module.modules():
        if isinstance(layer, nn.Linear | nn.Conv1d | nn.Conv2d):
            if kind == "orthogonal":
                nn.init.orthogonal_(layer.weight, gain)
            else:
                nn.init.normal_(layer.weight, std=gain / math.sqrt(layer.weight[0].numel()))
            if layer.bias is not None:
                nn.init.zeros_(layer.bias)


def scale(layer: nn.Module, factor: float) -> None:
    """Multiply the weights of one layer."""
    with torch.no_grad():
        layer.weight.mul_(factor)  # type: ignore[operator, union-attr]


def norm(kind: str, width: int, images: bool = False) -> nn.Module:
    """Batch norm without running statistics, layer norm, group norm or nothing."""
    if kind == "batch":
        return (nn.BatchNorm2d if images else nn.BatchNorm1d)(width, track_running_stats=False)
    if kind == "layer":
        return nn.GroupNorm(1, width) if images else nn.LayerNorm(width)
    return nn.GroupNorm(4, width) if kind == "group" else nn.Identity()


class Sum(nn.Module):
    """shortcut·x + α·branch(x), with something after the sum where asked for."""

    def __init__(self, branch: nn.Module, alpha: float = 1.0, after: nn.Module | None = None, learnt: bool = False):
        super().__init__()
        self.branch, self.after = branch, after or nn.Identity()
        self.alpha = nn.Parameter(torch.tensor(alpha)) if learnt else alpha

    def forward(self, x: Tensor) -> Tensor:
        return self.after(x + self.alpha * self.branch(x))


def plain_mlp(
    depth: int,
    activation: str,
    gain: float | None = None,
    kind: str = "normal",
    normed: str = "",
    width: int = 96,
    head: float = 1.0,
    inputs: float = 1.0,
    shift: float = 0.0,
) -> nn.Module:
    """Layers one after the other."""
    layers: list[nn.Module] = [Times(inputs)] if inputs != 1 else []
    sizes = [PIXELS, *[width] * depth]
    for before, after in zip(sizes, sizes[1:], strict=False):
        layers += [nn.Linear(before, after), norm(normed, after), ACTIVATIONS[activation]()]
    body = nn.Sequential(*layers)
    draw(body, gain, kind)
    for layer in body:
        if shift and isinstance(layer, nn.Linear):
            nn.init.constant_(layer.bias, shift)
    last = nn.Linear(width, CLASSES)
    scale(last, head)
    return nn.Sequential(body, last)


class Times(nn.Module):
    """Multiplies what it gets: inputs that nobody standardised."""

    def __init__(self, factor: float) -> None:
        super().__init__()
        self.factor = factor

    def forward(self, x: Tensor) -> Tensor:
        return self.factor * x


def residual_mlp(
    depth: int,
    activation: str = "relu",
    gain: float | None = math.sqrt(2),
    alpha: float = 1.0,
    normed: str = "",
    place: str = "before",
    last: float = 1.0,
    learnt: bool = False,
    after: str = "",
    width: int = 96,
    head: float = 1.0,
) -> nn.Module:
    """Residual blocks of two matrices."""
    blocks: list[nn.Module] = [nn.Linear(PIXELS, width)]
    for _ in range(depth):
        inner = [nn.Linear(width, width), ACTIVATIONS[activation](), nn.Linear(width, width)]
        branch = nn.Sequential(norm(normed if place == "before" else "", width), *inner)
        draw(branch, gain)
        scale(branch[-1], last)
        closing = norm(normed, width) if place == "after" else ACTIVATIONS[after]() if after else None
        blocks.append(Sum(branch, alpha, closing, learnt))
    head_layer = nn.Linear(width, CLASSES)
    scale(head_layer, head)
    return nn.Sequential(*blocks, norm(normed if place == "before" else "", width), head_layer)


class Dense(nn.Module):
    """Each layer sees all before it; what it makes is put beside them."""

    def __init__(self, inputs: int, growth: int, depth: int, activation: str, gain: float | None, normed: str) -> None:
        super().__init__()
        widths = [inputs + growth * i for i in range(depth)]
        made = [[norm(normed, w), ACTIVATIONS[activation](), nn.Linear(w, growth)] for w in widths]
        self.layers = nn.ModuleList(nn.Sequential(*parts) for parts in made)
        self.width = inputs + growth * depth
        draw(self.layers, gain)

    def forward(self, x: Tensor) -> Tensor:
        for layer in self.layers:
            x = torch.cat([x, layer(x)], -1)
        return x


def dense_mlp(
    depth: int, activation: str = "relu", gain: float | None = None, normed: str = "", growth: int = 24, head: float = 1
) -> nn.Module:
    """A densely connected network on digits."""
    body = Dense(64, growth, depth, activation, gain, normed)
    last = nn.Linear(body.width, CLASSES)
    scale(last, head)
    return nn.Sequential(nn.Linear(PIXELS, 64), body, last)


def plain_conv(
    depth: int,
    activation: str = "relu",
    gain: float | None = None,
    normed: str = "",
    width: int = 24,
    kind: str = "normal",
    head: float = 1.0,
    pool: bool = True,
) -> nn.Module:
    """Convolutions one after the other, halving the image twice."""
    layers: list[nn.Module] = []
    channels = 3
    halved = {1, max(2, depth // 2)}
    for i in range(depth):
        layers += [nn.Conv2d(channels, width, 3, 2 if i in halved else 1, 1), norm(normed, width, True)]
        layers.append(ACTIVATIONS[activation]())
        channels = width
    body = nn.Sequential(*layers)
    draw(body, gain, kind)
    end = [nn.AdaptiveAvgPool2d(1 if pool else 4), nn.Flatten(), nn.Linear(width if pool else 16 * width, CLASSES)]
    scale(end[-1], head)
    return nn.Sequential(body, *end)


def residual_conv(
    depth: int,
    activation: str = "relu",
    gain: float | None = math.sqrt(2),
    normed: str = "batch",
    alpha: float = 1.0,
    last: float = 1.0,
    learnt: bool = False,
    after: str = "",
    width: int = 24,
    head: float = 1.0,
) -> nn.Module:
    """Residual blocks of two convolutions in two stages."""

    def block(channels: int) -> nn.Module:
        inner = [
            norm(normed, channels, True),
            ACTIVATIONS[activation](),
            nn.Conv2d(channels, channels, 3, 1, 1),
            norm(normed, channels, True),
            ACTIVATIONS[activation](),
            nn.Conv2d(channels, channels, 3, 1, 1),
        ]
        branch = nn.Sequential(*inner)
        draw(branch, gain)
        scale(branch[-1], last)
        return Sum(branch, alpha, ACTIVATIONS[after]() if after else None, learnt)

    first = [nn.Conv2d(3, width, 3, 2, 1), *(block(width) for _ in range(depth // 2))]
    second = [nn.Conv2d(width, 2 * width, 3, 2, 1), *(block(2 * width) for _ in range(depth - depth // 2))]
    end = [norm(normed, 2 * width, True), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(2 * width, CLASSES)]
    scale(end[-1], head)
    return nn.Sequential(*first, *second, *end)


class DenseConv(nn.Module):
    """Densely connected convolutions."""

    def __init__(self, inputs: int, growth: int, depth: int, activation: str, gain: float | None, normed: str) -> None:
        super().__init__()
        widths = [inputs + growth * i for i in range(depth)]
        made = [[norm(normed, w, True), ACTIVATIONS[activation](), nn.Conv2d(w, growth, 3, 1, 1)] for w in widths]
        self.layers = nn.ModuleList(nn.Sequential(*parts) for parts in made)
        self.width = inputs + growth * depth
        draw(self.layers, gain)

    def forward(self, x: Tensor) -> Tensor:
        for layer in self.layers:
            x = torch.cat([x, layer(x)], 1)
        return x


def dense_conv(
    depth: int, activation: str = "relu", gain: float | None = None, normed: str = "", growth: int = 8, head: float = 1
) -> nn.Module:
    """A densely connected network on images."""
    body = DenseConv(16, growth, depth, activation, gain, normed)
    last = nn.Linear(body.width, CLASSES)
    scale(last, head)
    return nn.Sequential(nn.Conv2d(3, 16, 4, 4), body, nn.AdaptiveAvgPool2d(1), nn.Flatten(), last)


class Mixing(nn.Module):
    """A branch that mixes patches: the two last axes change places around it."""

    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, x: Tensor) -> Tensor:
        return self.inner(x.transpose(1, 2)).transpose(1, 2)


class Mean(nn.Module):
    """The mean over patches."""

    def forward(self, x: Tensor) -> Tensor:
        return x.mean(1)


class Patches(nn.Module):
    """An image as a row of patches of 4×4 pixels, each one vector."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.cut = nn.Conv2d(3, width, 4, 4)

    def forward(self, x: Tensor) -> Tensor:
        return self.cut(x).flatten(2).transpose(1, 2)


def mixer(
    depth: int,
    gain: float | None = None,
    normed: str = "layer",
    place: str = "before",
    alpha: float = 1.0,
    residual: bool = True,
    activation: str = "gelu",
    width: int = 48,
    head: float = 1.0,
    learnt: bool = False,
) -> nn.Module:
    """Patches and channels are mixed in turns."""

    def perceptron(size: int) -> nn.Module:
        return nn.Sequential(nn.Linear(size, 2 * size), ACTIVATIONS[activation](), nn.Linear(2 * size, size))

    blocks: list[nn.Module] = []
    for _ in range(depth):
        for inner in (Mixing(perceptron(64)), perceptron(width)):
            draw(inner, gain)
            before = norm(normed if place == "before" else "", width)
            branch = nn.Sequential(before, inner)
            closing = norm(normed, width) if place == "after" else None
            blocks.append(Sum(branch, alpha, closing, learnt) if residual else branch)
    last = nn.Linear(width, CLASSES)
    scale(last, head)
    return nn.Sequential(Patches(width), *blocks, norm(normed if place == "before" else "", width), Mean(), last)


class Attention(nn.Module):
    """Causal attention of several heads."""

    def __init__(self, width: int, heads: int = 4) -> None:
        super().__init__()
        self.heads = heads
        self.join, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.register_buffer("mask", torch.full((CONTEXT, CONTEXT), -math.inf).triu(1), persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        samples, length, width = x.shape
        query, key, value = self.join(x).view(samples, length, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        scores = query @ key.transpose(-1, -2) / math.sqrt(width // self.heads) + self.mask[:length, :length]
        mixed = scores.softmax(-1) @ value
        return self.out(mixed.transpose(1, 2).reshape(samples, length, width))


class Embedding(nn.Module):
    """Characters and their places as vectors."""

    def __init__(self, width: int, std: float, places: bool = True) -> None:
        super().__init__()
        self.characters, self.places = nn.Embedding(SCORES, width), nn.Parameter(std * torch.randn(CONTEXT, width))
        nn.init.normal_(self.characters.weight, std=std)
        self.used = places

    def forward(self, codes: Tensor) -> Tensor:
        found = F.embedding(codes, self.characters.weight)
        return found + self.places[: codes.shape[-1]] if self.used else found


def transformer(
    depth: int,
    place: str = "before",
    gain: float | None = None,
    embedding: float = 1.0,
    alpha: float = 1.0,
    normed: str = "layer",
    residual: bool = True,
    width: int = 48,
    head: float = 1.0,
    activation: str = "gelu",
    learnt: bool = False,
) -> nn.Module:
    """A causal language model."""
    blocks: list[nn.Module] = []
    for _ in range(depth):
        feed = nn.Sequential(nn.Linear(width, 4 * width), ACTIVATIONS[activation](), nn.Linear(4 * width, width))
        for inner in (Attention(width), feed):
            draw(inner, gain)
            branch = nn.Sequential(norm(normed if place == "before" else "", width), inner)
            closing = norm(normed, width) if place == "after" else None
            blocks.append(Sum(branch, alpha, closing, learnt) if residual else branch)
    last = nn.Linear(width, SCORES)
    scale(last, head)
    return nn.Sequential(Embedding(width, embedding), *blocks, norm(normed if place == "before" else "", width), last)


class Recurrent(nn.Module):
    """Layers of cells over the characters: plain, with a shortcut in time, or gated."""

    def __init__(self, cell: str, layers: int, width: int, gain: float | None, activation: str) -> None:
        super().__init__()
        self.cell, self.act = cell, ACTIVATIONS[activation]()
        gates = {"plain": 1, "residual": 1, "gated": 3}[cell]
        self.come = nn.ModuleList(nn.Linear(width, gates * width) for _ in range(layers))
        self.stay = nn.ModuleList(nn.Linear(width, gates * width) for _ in range(layers))
        draw(self.stay, gain)

    def forward(self, x: Tensor) -> Tensor:
        for come, stay in zip(self.come, self.stay, strict=True):
            given, state, states = come(x), torch.zeros_like(x[:, 0]), []
            for step in range(x.shape[1]):
                state = self._next(given[:, step], stay(state), state)
                states.append(state)
            x = torch.stack(states, 1)
        return x

    def _next(self, given: Tensor, kept: Tensor, state: Tensor) -> Tensor:
        if self.cell == "gated":
            open_, reset, new = given.chunk(3, -1)
            open_kept, reset_kept, new_kept = kept.chunk(3, -1)
            share = torch.sigmoid(open_ + open_kept)
            return share * state + (1 - share) * torch.tanh(new + torch.sigmoid(reset + reset_kept) * new_kept)
        moved = self.act(given + kept)
        return state + 0.3 * moved if self.cell == "residual" else moved


def recurrent(
    cell: str, layers: int = 1, gain: float | None = None, activation: str = "tanh", head: float = 1.0, width: int = 64
) -> nn.Module:
    """A recurrent language model."""
    last = nn.Linear(width, SCORES)
    scale(last, head)
    return nn.Sequential(Embedding(width, 1.0, places=False), Recurrent(cell, layers, width, gain, activation), last)


class Causal(nn.Module):
    """A convolution over characters that sees nothing of what comes later."""

    def __init__(self, width: int, dilation: int) -> None:
        super().__init__()
        self.filters, self.space = nn.Conv1d(width, width, 3, dilation=dilation), 2 * dilation

    def forward(self, x: Tensor) -> Tensor:
        return self.filters(F.pad(x.transpose(1, 2), (self.space, 0))).transpose(1, 2)


def causal_conv(
    depth: int,
    residual: bool = True,
    gain: float | None = None,
    normed: str = "",
    alpha: float = 1.0,
    activation: str = "relu",
    width: int = 48,
    head: float = 1.0,
    embedding: float = 1.0,
) -> nn.Module:
    """A convolutional language model."""
    blocks: list[nn.Module] = []
    for i in range(depth):
        branch = nn.Sequential(norm(normed, width), Causal(width, 2 ** (i % 4)), ACTIVATIONS[activation]())
        draw(branch, gain)
        blocks.append(Sum(branch, alpha) if residual else branch)
    last = nn.Linear(width, SCORES)
    scale(last, head)
    return nn.Sequential(Embedding(width, embedding, places=False), *blocks, last)


def _plain_mlps() -> Iterator[tuple]:
    two = math.sqrt(2)
    for depth in (2, 6, 12, 24, 40):
        yield plain_mlp, (depth, "relu"), {}
        yield plain_mlp, (depth, "relu", two), {}
        yield plain_mlp, (depth, "tanh", 1.0), {}
    yield plain_mlp, (4, "sigmoid"), {}
    yield plain_mlp, (10, "sigmoid", 4.0), {}
    yield plain_mlp, (12, "relu", 3.0), {}
    yield plain_mlp, (20, "tanh", 2.5), {}
    yield plain_mlp, (20, "tanh", 1.0, "orthogonal"), {}
    yield plain_mlp, (16, "gelu", two), {}
    yield plain_mlp, (30, "gelu"), {}
    yield plain_mlp, (16, "relu", two), {"normed": "batch"}
    yield plain_mlp, (40, "relu", two), {"normed": "batch"}
    yield plain_mlp, (16, "relu", two), {"normed": "layer"}
    yield plain_mlp, (40, "relu", two), {"normed": "layer"}
    yield plain_mlp, (4, "relu", two), {"head": 30.0}
    yield plain_mlp, (4, "relu"), {"inputs": 50.0}
    yield plain_mlp, (6, "tanh", 1.0), {"inputs": 50.0}
    yield plain_mlp, (6, "relu", two), {"shift": -3.0}
    yield plain_mlp, (8, "silu", 1.6), {"width": 24}
    yield plain_mlp, (3, "relu", 0.1), {}
    yield plain_mlp, (8, "relu", 0.3), {}


def _residual_mlps() -> Iterator[tuple]:
    for depth in (4, 16, 40):
        yield residual_mlp, (depth,), {}
        yield residual_mlp, (depth,), {"alpha": 1 / math.sqrt(depth)}
        yield residual_mlp, (depth,), {"normed": "layer"}
        yield residual_mlp, (depth,), {"normed": "layer", "place": "after"}
        yield residual_mlp, (depth,), {"last": 0.0}
        yield residual_mlp, (depth, "tanh", 1.0), {}
    yield residual_mlp, (24,), {"normed": "batch"}
    yield residual_mlp, (24,), {"normed": "batch", "place": "after"}
    yield residual_mlp, (24,), {"alpha": 0.0, "learnt": True}
    yield residual_mlp, (12,), {"after": "tanh"}
    yield residual_mlp, (30,), {"after": "tanh"}
    yield residual_mlp, (12,), {"last": 5.0}
    yield residual_mlp, (20, "gelu", None), {}
    yield residual_mlp, (20, "gelu", None), {"normed": "layer"}
    yield residual_mlp, (8,), {"head": 30.0}
    yield residual_mlp, (12, "relu", 4.0), {"normed": "layer"}
    yield residual_mlp, (12,), {"after": "sigmoid"}


def _dense_mlps() -> Iterator[tuple]:
    for depth in (4, 12, 24):
        yield dense_mlp, (depth,), {}
        yield dense_mlp, (depth, "relu", math.sqrt(2)), {}
        yield dense_mlp, (depth, "relu", math.sqrt(2), "layer"), {}
    yield dense_mlp, (12, "tanh", 1.0), {}
    yield dense_mlp, (12, "relu", 5.0), {}
    yield dense_mlp, (20, "relu", 3.0), {}
    yield dense_mlp, (8, "gelu", None, "batch"), {}
    yield dense_mlp, (8, "sigmoid"), {}


def _plain_convs() -> Iterator[tuple]:
    two = math.sqrt(2)
    for depth in (4, 10, 20):
        yield plain_conv, (depth,), {}
        yield plain_conv, (depth, "relu", two), {}
        yield plain_conv, (depth, "relu", two, "batch"), {}
    yield plain_conv, (10, "tanh", 1.0), {}
    yield plain_conv, (10, "gelu", two), {}
    yield plain_conv, (20, "gelu"), {}
    yield plain_conv, (10, "relu", 3.0), {}
    yield plain_conv, (16, "leaky", 1.41, "group"), {}
    yield plain_conv, (10, "tanh", 3.0), {}
    yield plain_conv, (6, "sigmoid"), {}
    yield plain_conv, (6, "relu", two), {"head": 50.0}
    yield plain_conv, (6, "relu", two), {"pool": False}
    yield plain_conv, (30, "relu", two, "batch"), {}
    yield plain_conv, (30, "relu", two), {}


def _residual_convs() -> Iterator[tuple]:
    for depth in (4, 10, 18):
        yield residual_conv, (depth,), {}
        yield residual_conv, (depth,), {"normed": ""}
        yield residual_conv, (depth,), {"normed": "", "last": 0.0}
        yield residual_conv, (depth,), {"normed": "", "alpha": 1 / math.sqrt(depth)}
    yield residual_conv, (10,), {"normed": "group"}
    yield residual_conv, (10,), {"normed": "", "alpha": 0.0, "learnt": True}
    yield residual_conv, (10,), {"normed": "", "gain": 3.0}
    yield residual_conv, (10,), {"normed": "", "after": "tanh"}
    yield residual_conv, (10, "gelu", None), {"normed": ""}
    yield residual_conv, (6,), {"head": 30.0}
    yield residual_conv, (10,), {"alpha": 5.0}


def _dense_convs() -> Iterator[tuple]:
    for depth in (6, 14):
        yield dense_conv, (depth,), {}
        yield dense_conv, (depth, "relu", math.sqrt(2)), {}
        yield dense_conv, (depth, "relu", math.sqrt(2), "batch"), {}
    yield dense_conv, (10, "relu", 4.0), {}
    yield dense_conv, (10, "tanh", 1.0), {}


def _mixers() -> Iterator[tuple]:
    for depth in (2, 6, 12):
        yield mixer, (depth,), {}
        yield mixer, (depth,), {"place": "after"}
        yield mixer, (depth,), {"normed": ""}
        yield mixer, (depth,), {"residual": False}
    yield mixer, (6, 2.0), {}
    yield mixer, (6, 2.0), {"normed": ""}
    yield mixer, (6,), {"alpha": 0.0, "learnt": True, "normed": ""}
    yield mixer, (6,), {"head": 30.0}
    yield mixer, (12, 1.4), {"place": "after"}
    yield mixer, (6,), {"residual": False, "normed": ""}


def _transformers() -> Iterator[tuple]:
    for depth in (2, 6, 12, 20):
        yield transformer, (depth,), {}
        yield transformer, (depth, "after"), {}
        yield transformer, (depth,), {"normed": ""}
    yield transformer, (6,), {"residual": False}
    yield transformer, (3,), {"residual": False, "normed": ""}
    yield transformer, (6, "before", 2.0), {}
    yield transformer, (6, "after", 2.0), {}
    yield transformer, (6, "before", 2.0), {"normed": ""}
    yield transformer, (6,), {"embedding": 0.02}
    yield transformer, (6,), {"embedding": 30.0}
    yield transformer, (6,), {"head": 30.0}
    yield transformer, (12,), {"alpha": 0.0, "learnt": True, "normed": ""}
    yield transformer, (12, "before", 0.1), {"embedding": 0.02}


def _recurrents() -> Iterator[tuple]:
    for cell in ("plain", "residual", "gated"):
        yield recurrent, (cell,), {}
        yield recurrent, (cell, 3), {}
    yield recurrent, ("plain", 1, 1.0), {}
    yield recurrent, ("plain", 1, 3.0), {}
    yield recurrent, ("plain", 4, 1.5), {}
    yield recurrent, ("plain", 1, 1.4, "relu"), {}
    yield recurrent, ("plain", 3, 2.0, "relu"), {}
    yield recurrent, ("residual", 3, 2.0, "relu"), {}
    yield recurrent, ("plain", 2, 4.0, "sigmoid"), {}
    yield recurrent, ("gated",), {"head": 50.0}


def _causal_convs() -> Iterator[tuple]:
    two = math.sqrt(2)
    for depth in (4, 12, 24):
        yield causal_conv, (depth,), {}
        yield causal_conv, (depth, False), {}
        yield causal_conv, (depth, False, two), {}
        yield causal_conv, (depth, True, two), {}
        yield causal_conv, (depth, True, two, "layer"), {}
    yield causal_conv, (12, True, two), {"alpha": 0.29}
    yield causal_conv, (12, True, 3.0), {}
    yield causal_conv, (12, False, 1.0), {"activation": "tanh"}
    yield causal_conv, (8, True), {"head": 40.0}


_FAMILIES = {
    "plain mlp": ("digits", _plain_mlps),
    "residual mlp": ("digits", _residual_mlps),
    "dense mlp": ("digits", _dense_mlps),
    "plain conv": ("cifar10", _plain_convs),
    "residual conv": ("cifar10", _residual_convs),
    "dense conv": ("cifar10", _dense_convs),
    "mixer": ("cifar10", _mixers),
    "transformer": ("text", _transformers),
    "recurrent": ("text", _recurrents),
    "causal conv": ("text", _causal_convs),
}


def _listed() -> Iterator[Network]:
    for family, (task, members) in _FAMILIES.items():
        for build, args, options in members():
            words = [f"{value:.2f}" if isinstance(value, float) else str(value) for value in args]
            words += [
                f"{key}={value:.2g}" if isinstance(value, float) else f"{key}={value}" for key, value in options.items()
            ]
            name = f"{build.__name__}({', '.join(words)})"
            yield Network(name, family, task, lambda b=build, a=args, o=options: b(*a, **o))


NETWORKS = {network.name: network for network in _listed()}
