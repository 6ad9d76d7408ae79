"""Networks with a known fault, each beside its twin without it: families that neither `improve` nor the forecast knows.

A network is its family's `build(depth, **fault)`; the twin is `build(depth)`. So what is wrong is known beforehand, and
so is what the best network of the same family and depth reaches: the twin, at the best rate of a grid.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from benchmarks.improvement.unseen import HE, UNSEEN
from benchmarks.trainability.architectures import CLASSES, PIXELS, SCORES, Times, draw, scale
from benchmarks.trainability.tasks import CONTEXT


@dataclass(frozen=True)
class Twin:
    """A network by what it is built with; without a fault it is the twin of those that have one."""

    family: str
    task: str
    make: Callable[..., nn.Module]
    depth: int
    fault: dict[str, Any] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """The family, its depth and the fault."""
        words = [f"{key}={getattr(value, '__name__', value)}" for key, value in self.fault.items()]
        return f"{self.family}({', '.join([str(self.depth), *words])})"

    @property
    def healthy(self) -> "Twin":
        """The network without the fault."""
        return Twin(self.family, self.task, self.make, self.depth)

    def build(self, seed: int) -> nn.Module:
        """The network as it starts with this seed."""
        torch.manual_seed(2000 + seed)
        return self.make(self.depth, **self.fault).train()


class Highway(nn.Module):
    """t·h(x) + (1 − t)·x with a gate t (Srivastava et al. 2015), which starts nearly shut where its bias is low."""

    def __init__(self, width: int, gain: float, bias: float, activation: type[nn.Module]) -> None:
        super().__init__()
        self.inner, self.gate, self.act = nn.Linear(width, width), nn.Linear(width, width), activation()
        draw(self.inner, gain)
        nn.init.constant_(self.gate.bias, bias)

    def forward(self, x: Tensor) -> Tensor:
        share = torch.sigmoid(self.gate(x))
        return share * self.act(self.inner(x)) + (1 - share) * x


def highway(
    depth: int,
    gain: float = HE,
    bias: float = -2.0,
    activation: type[nn.Module] = nn.ReLU,
    head: float = 1.0,
    inputs: float = 1.0,
) -> nn.Module:
    """A highway network on digits."""
    body = [Highway(64, gain, bias, activation) for _ in range(depth)]
    last = nn.Linear(64, CLASSES)
    scale(last, head)
    return nn.Sequential(Times(inputs), nn.Linear(PIXELS, 64), *body, last)


def vgg(  # noqa: PLR0913 - one keyword for each fault
    depth: int,
    normed: bool = True,
    gain: float | None = HE,
    activation: type[nn.Module] = nn.ReLU,
    shift: float = 0.0,
    head: float = 1.0,
    inputs: float = 1.0,
    probabilities: bool = False,
) -> nn.Module:
    """Convolutions with max pooling in between, and two linear layers at the end."""
    layers: list[nn.Module] = [Times(inputs)]
    channels, pools = 3, {depth // 4, depth // 2, 3 * depth // 4}
    for place in range(depth):
        layers += [nn.Conv2d(channels, 24, 3, padding=1), nn.BatchNorm2d(24) if normed else nn.Identity(), activation()]
        channels = 24
        layers += [nn.MaxPool2d(2)] * (place in pools)
    layers += [nn.AdaptiveAvgPool2d(2), nn.Flatten(), nn.Linear(96, 64), activation()]
    body = nn.Sequential(*layers)
    draw(body, gain)
    for layer in body:
        if shift and isinstance(layer, nn.Conv2d):
            nn.init.constant_(layer.bias, shift)  # type: ignore[arg-type]  # all have one
    last = nn.Linear(64, CLASSES)
    scale(last, head)
    return nn.Sequential(body, last, nn.Softmax(-1) if probabilities else nn.Identity())


class Inverted(nn.Module):
    """Wider inside, by channel, gated by what the whole image holds (MobileNetV3), beside a shortcut."""

    def __init__(self, width: int, normed: bool, gain: float | None, closing: type[nn.Module]) -> None:
        super().__init__()
        inner = 3 * width

        def norm(channels: int) -> nn.Module:
            return nn.BatchNorm2d(channels) if normed else nn.Identity()

        self.spread = nn.Sequential(nn.Conv2d(width, inner, 1), norm(inner), nn.SiLU())
        self.filters = nn.Sequential(nn.Conv2d(inner, inner, 3, padding=1, groups=inner), norm(inner), nn.SiLU())
        self.gate = nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Conv2d(inner, 8, 1), nn.SiLU(), nn.Conv2d(8, inner, 1))
        self.back = nn.Sequential(nn.Conv2d(inner, width, 1), norm(width))
        self.closing = closing()
        draw(self, gain)

    def forward(self, x: Tensor) -> Tensor:
        inside = self.filters(self.spread(x))
        return self.closing(x + self.back(inside * torch.sigmoid(self.gate(inside))))


def inverted(
    depth: int,
    normed: bool = True,
    gain: float | None = HE,
    closing: type[nn.Module] = nn.Identity,
    head: float = 1.0,
) -> nn.Module:
    """Inverted residual blocks on images."""
    last = nn.Linear(16, CLASSES)
    scale(last, head)
    body = [Inverted(16, normed, gain, closing) for _ in range(depth)]
    return nn.Sequential(nn.Conv2d(3, 16, 4, 4), *body, nn.AdaptiveAvgPool2d(1), nn.Flatten(), last)


class UNet(nn.Module):
    """Down and up again, with what was on the way down put beside what comes up; then a mean."""

    def __init__(self, depth: int, gain: float | None, normed: bool, activation: type[nn.Module], head: float) -> None:
        super().__init__()

        def stage(channels: int, stride: int = 1) -> nn.Module:
            norms = [nn.BatchNorm2d(16) if normed else nn.Identity() for _ in range(2)]
            first, second = nn.Conv2d(channels, 16, 3, stride, 1), nn.Conv2d(16, 16, 3, 1, 1)
            return nn.Sequential(first, norms[0], activation(), second, norms[1], activation())

        self.first = stage(3, 2)
        self.down = nn.ModuleList(stage(16, 2) for _ in range(depth))
        self.up = nn.ModuleList(stage(32) for _ in range(depth))
        draw(self, gain)
        self.last = nn.Linear(16, CLASSES)
        scale(self.last, head)

    def forward(self, x: Tensor) -> Tensor:
        x, kept = self.first(x), []
        for stage in self.down:
            kept.append(x)
            x = stage(x)
        for stage, beside in zip(self.up, reversed(kept), strict=True):
            x = stage(torch.cat([F.interpolate(x, beside.shape[-2:]), beside], 1))
        return self.last(x.mean((-2, -1)))


def unet(
    depth: int,
    gain: float | None = HE,
    normed: bool = True,
    activation: type[nn.Module] = nn.ReLU,
    head: float = 1.0,
) -> nn.Module:
    """A U-Net that gives one answer for each image."""
    return UNet(depth, gain, normed, activation, head)


class Gated(nn.Module):
    """Embedding, recurrent layers of torch, scores of the next character."""

    def __init__(self, depth: int, cell: type[nn.RNNBase], recurrent: float, embedding: float, head: float) -> None:
        super().__init__()
        self.characters, self.cells = nn.Embedding(SCORES, 48), cell(48, 64, depth, batch_first=True)
        nn.init.normal_(self.characters.weight, std=embedding)
        for name, parameter in self.cells.named_parameters():
            if name.startswith("weight_hh"):
                parameter.data.mul_(recurrent)
        self.last = nn.Linear(64, SCORES)
        scale(self.last, head)

    def forward(self, codes: Tensor) -> Tensor:
        return self.last(self.cells(self.characters(codes))[0])


def gated(
    depth: int,
    cell: type[nn.RNNBase] = nn.GRU,
    recurrent: float = 1.0,
    embedding: float = 1.0,
    head: float = 1.0,
) -> nn.Module:
    """A recurrent language model of torch's own cells."""
    return Gated(depth, cell, recurrent, embedding, head)


class Encoder(nn.Module):
    """torch's own encoder, told to look back only."""

    def __init__(self, depth: int, first: bool, gain: float, embedding: float, head: float) -> None:
        super().__init__()
        self.characters = nn.Embedding(SCORES, 48)
        nn.init.normal_(self.characters.weight, std=embedding)
        self.places = nn.Parameter(embedding * torch.randn(CONTEXT, 48))
        layer = nn.TransformerEncoderLayer(48, 4, 128, dropout=0.0, batch_first=True, norm_first=first)
        self.blocks = nn.TransformerEncoder(
            layer, depth, nn.LayerNorm(48) if first else None, enable_nested_tensor=False
        )
        for parameter in self.blocks.parameters():
            if parameter.ndim > 1:
                nn.init.xavier_uniform_(parameter, gain)
        self.last = nn.Linear(48, SCORES)
        scale(self.last, head)
        self.register_buffer("mask", nn.Transformer.generate_square_subsequent_mask(CONTEXT), persistent=False)

    def forward(self, codes: Tensor) -> Tensor:
        return self.last(self.blocks(self.characters(codes) + self.places, mask=self.mask))


def encoder(depth: int, first: bool = True, gain: float = 1.0, embedding: float = 1.0, head: float = 1.0) -> nn.Module:
    """A causal language model of torch's own layers."""
    return Encoder(depth, first, gain, embedding, head)


class Row(nn.Module):
    """A block for rows of a table: a norm, two layers and dropout beside a shortcut (Gorishniy et al. 2021)."""

    def __init__(self, width: int, normed: bool, gain: float | None, branch: float, closing: type[nn.Module]) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(width) if normed else nn.Identity()
        self.first, self.second, self.drop = nn.Linear(width, 2 * width), nn.Linear(2 * width, width), nn.Dropout(0.05)
        self.closing = closing()
        draw(self, gain)
        scale(self.second, branch)

    def forward(self, x: Tensor) -> Tensor:
        return self.closing(x + self.second(self.drop(torch.relu(self.first(self.norm(x))))))


def tabular(  # noqa: PLR0913 - one keyword for each fault
    depth: int,
    normed: bool = True,
    gain: float | None = HE,
    branch: float = 1.0,
    closing: type[nn.Module] = nn.Identity,
    head: float = 1.0,
    inputs: float = 1.0,
) -> nn.Module:
    """A residual network for tables."""
    last = nn.Linear(64, CLASSES)
    scale(last, head)
    body = [Row(64, normed, gain, branch, closing) for _ in range(depth)]
    return nn.Sequential(Times(inputs), nn.Linear(PIXELS, 64), *body, last)


class Next(nn.Module):
    """Filters by channel, a norm over channels and two layers beside a shortcut (ConvNeXt, Liu et al. 2022)."""

    def __init__(self, width: int, normed: bool, gain: float | None, branch: float, closing: type[nn.Module]) -> None:
        super().__init__()
        self.filters = nn.Conv2d(width, width, 7, padding=3, groups=width)
        self.norm = nn.LayerNorm(width) if normed else nn.Identity()
        self.spread, self.act, self.back = nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width)
        self.closing = closing()
        draw(self, gain)
        scale(self.back, branch)

    def forward(self, x: Tensor) -> Tensor:
        inside = self.norm(self.filters(x).movedim(1, -1))  # layers act on the last axis
        return self.closing(x + self.back(self.act(self.spread(inside))).movedim(-1, 1))


def convnext(
    depth: int,
    normed: bool = True,
    gain: float | None = None,
    branch: float = 0.1,
    closing: type[nn.Module] = nn.Identity,
    head: float = 1.0,
) -> nn.Module:
    """Patches of images and blocks of ConvNeXt."""
    last = nn.Linear(32, CLASSES)
    scale(last, head)
    body = [Next(32, normed, gain, branch, closing) for _ in range(depth)]
    return nn.Sequential(nn.Conv2d(3, 32, 4, 4), *body, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.LayerNorm(32), last)


class Wave(nn.Module):
    """tanh(a)·sigmoid(b) of filters with holes that look back (WaveNet, van den Oord et al. 2016), for two sums."""

    def __init__(self, width: int, holes: int, gain: float | None, gate: float) -> None:
        super().__init__()
        self.past = nn.ConstantPad1d((holes, 0), 0.0)
        self.both = nn.Conv1d(width, 2 * width, 2, dilation=holes)
        self.on, self.out = nn.Conv1d(width, width, 1), nn.Conv1d(width, width, 1)
        draw(self, gain)
        self.both.bias.data[width:] += gate  # type: ignore[union-attr]  # it has one

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        value, gate = self.both(self.past(x)).chunk(2, 1)
        inside = torch.tanh(value) * torch.sigmoid(gate)
        return self.on(inside), self.out(inside)


class WaveNet(nn.Module):
    """A causal language model; every layer adds to the answer."""

    def __init__(self, depth: int, shortcut: bool, gain: float | None, gate: float, embedding: float) -> None:
        super().__init__()
        self.characters = nn.Embedding(SCORES, 48)
        nn.init.normal_(self.characters.weight, std=embedding)
        self.waves = nn.ModuleList(Wave(48, 2 ** (place % 5), gain, gate) for place in range(depth))
        self.shortcut, self.last = shortcut, nn.Linear(48, SCORES)

    def forward(self, codes: Tensor) -> Tensor:
        x, answer = self.characters(codes).movedim(-1, 1), torch.zeros((), device=codes.device)
        for wave in self.waves:
            on, out = wave(x)
            x, answer = (x + on, answer + out) if self.shortcut else (on, out)
        return self.last(torch.relu(answer).movedim(1, -1))


def wavenet(
    depth: int,
    shortcut: bool = True,
    gain: float | None = 1.0,
    gate: float = 0.0,
    embedding: float = 1.0,
    head: float = 1.0,
) -> nn.Module:
    """A WaveNet on text."""
    made = WaveNet(depth, shortcut, gain, gate, embedding)
    scale(made.last, head)
    return made


def _all() -> Iterator[Twin]:
    for depth in (10, 30):
        yield from _with("highway", "digits", highway, depth, {}, {"bias": 4.0}, {"gain": 4.0}, {"head": 50.0})
    yield from _with("highway", "digits", highway, 20, {}, {"activation": nn.Sigmoid, "bias": 3.0}, {"inputs": 100.0})
    deep = {"normed": False, "gain": None}
    for depth in (8, 16):
        yield from _with(
            "vgg", "cifar10", vgg, depth, {}, deep, {"normed": False, "gain": 3.0}, {"shift": -3.0, "normed": False}
        )
    yield from _with(
        "vgg", "cifar10", vgg, 8, {"probabilities": True}, {"activation": nn.Sigmoid, **deep}, {"inputs": 0.001, **deep}
    )
    for depth in (6, 16):
        yield from _with(
            "inverted", "cifar10", inverted, depth, {}, deep, {"closing": nn.Sigmoid}, {"normed": False, "gain": 2.5}
        )
    for depth in (2, 4):
        yield from _with(
            "unet", "cifar10", unet, depth, {}, deep, {"normed": False, "gain": 3.0}, {"activation": nn.Sigmoid, **deep}
        )
    for depth in (1, 3):
        yield from _with("gated", "text", gated, depth, {}, {"head": 100.0}, {"embedding": 50.0}, {"recurrent": 20.0})
    for depth in (4, 12):
        yield from _with(
            "encoder", "text", encoder, depth, {}, {"first": False, "gain": 2.0}, {"gain": 0.02}, {"head": 50.0}
        )
    for depth in (6, 24):
        yield from _with(
            "tabular",
            "digits",
            tabular,
            depth,
            {},
            {"normed": False, "branch": 4.0},
            {"closing": nn.Tanh, "normed": False, "branch": 3.0},
            {"inputs": 1e-3, "normed": False, "gain": None},
        )


def _more() -> Iterator[Twin]:
    """More of them at other depths, since some faults turned out to be none; chosen before any was trained."""
    unnormed: dict[str, Any] = {"normed": False, "gain": None}
    yield from _with("vgg", "cifar10", vgg, 12, {}, unnormed, {"head": 100.0})
    yield from _with("inverted", "cifar10", inverted, 10, {}, unnormed, {"closing": nn.Sigmoid})
    yield from _with("encoder", "text", encoder, 8, {}, {"first": False, "gain": 2.0}, {"head": 50.0})
    yield from _with("unet", "cifar10", unet, 3, unnormed)
    yield from _with("tabular", "digits", tabular, 12, {"normed": False, "branch": 4.0})
    yield from _with("gated", "text", gated, 2, {"recurrent": 20.0})


def _with(
    family: str, task: str, make: Callable[..., nn.Module], depth: int, *faults: dict[str, Any]
) -> Iterator[Twin]:
    return (Twin(family, task, make, depth, fault) for fault in faults)


def _healthy() -> Iterator[Twin]:
    """Some more without a fault."""
    for family, task, make, depth in (
        ("highway", "digits", highway, 4),
        ("vgg", "cifar10", vgg, 5),
        ("inverted", "cifar10", inverted, 3),
        ("unet", "cifar10", unet, 3),
        ("gated", "text", gated, 2),
        ("encoder", "text", encoder, 2),
        ("tabular", "digits", tabular, 12),
    ):
        yield Twin(family, task, make, depth)


def _blind() -> Iterator[Twin]:
    """Families that were added, before anything was run on them, when those above had been looked at."""
    for depth in (3, 8):
        yield from _with(
            "convnext",
            "cifar10",
            convnext,
            depth,
            {},
            {"normed": False, "gain": 3.0, "branch": 1.0},
            {"closing": nn.Sigmoid},
            {"head": 100.0},
        )
    for depth in (5, 10):
        yield from _with(
            "wavenet",
            "text",
            wavenet,
            depth,
            {},
            {"shortcut": False, "gain": None},
            {"gate": -6.0, "gain": 0.3},
            {"embedding": 50.0, "gain": 4.0},
            {"head": 100.0},
        )


def _unseen() -> Iterator[Twin]:
    """Families that were added when all of those above had been looked at, before anything was run on them."""
    for family, task, make, depths, faults in UNSEEN:
        for depth in depths:
            yield from _with(family, task, make, depth, {}, *faults)


TWINS = {twin.name: twin for twin in (*_all(), *_healthy(), *_more(), *_blind(), *_unseen())}
