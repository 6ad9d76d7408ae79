"""How the networks that are trained are built; each function draws its weights from torch's generator."""

import itertools
import math
from collections.abc import Callable

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
        layer.weight.mul_(factor)  # type: ignore[operator, union-attr]  # every layer that is scaled has a weight


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


def plain_mlp(  # noqa: PLR0913 - one keyword for each thing that is varied
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
    for before, after in itertools.pairwise(sizes):
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


def residual_mlp(  # noqa: PLR0913 - one keyword for each thing that is varied
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


def plain_conv(  # noqa: PLR0913 - one keyword for each thing that is varied
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


def residual_conv(  # noqa: PLR0913 - one keyword for each thing that is varied
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


def mixer(  # noqa: PLR0913 - one keyword for each thing that is varied
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


def transformer(  # noqa: PLR0913 - one keyword for each thing that is varied
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


def causal_conv(  # noqa: PLR0913 - one keyword for each thing that is varied
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
