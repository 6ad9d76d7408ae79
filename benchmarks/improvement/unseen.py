"""Families that were written when `improve` and all other families were finished, before anything was run on them.

Mixers, dense networks, bottlenecks in stages and GPT-2 as `transformers` has it: each `build(depth, **fault)`, as in
`twins.py`.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from benchmarks.trainability.architectures import CLASSES, SCORES, Times, draw, scale
from benchmarks.trainability.tasks import CONTEXT

HE = 2**0.5


class Mixing(nn.Module):
    """Two layers over the patches, then two over the channels (MLP-Mixer, Tolstikhin et al. 2021)."""

    def __init__(self, patches: int, width: int, normed: bool, shortcut: bool, activation: type[nn.Module]) -> None:
        super().__init__()

        def two(size: int, inner: int) -> nn.Module:
            return nn.Sequential(nn.Linear(size, inner), activation(), nn.Linear(inner, size))

        self.norms = nn.ModuleList(nn.LayerNorm(width) if normed else nn.Identity() for _ in range(2))
        self.tokens, self.channels, self.shortcut = two(patches, 32), two(width, 2 * width), shortcut

    def forward(self, x: Tensor) -> Tensor:
        mixed = self.tokens(self.norms[0](x).transpose(1, 2)).transpose(1, 2)
        x = x + mixed if self.shortcut else mixed
        mixed = self.channels(self.norms[1](x))
        return x + mixed if self.shortcut else mixed


class Mixer(nn.Module):
    """Patches of 4×4 pixels, mixed again and again, and their mean."""

    def __init__(self, body: list[nn.Module], width: int, inputs: float, head: float) -> None:
        super().__init__()
        self.times, self.patches = Times(inputs), nn.Conv2d(3, width, 4, 4)
        self.body, self.last = nn.Sequential(*body), nn.Linear(width, CLASSES)
        scale(self.last, head)

    def forward(self, images: Tensor) -> Tensor:
        patches = self.patches(self.times(images)).flatten(2).transpose(1, 2)
        return self.last(self.body(patches).mean(1))


def mixer(  # noqa: PLR0913 - one keyword for each fault
    depth: int,
    normed: bool = True,
    gain: float | None = None,
    shortcut: bool = True,
    activation: type[nn.Module] = nn.GELU,
    inputs: float = 1.0,
    head: float = 1.0,
) -> nn.Module:
    """A mixer on images."""
    body: list[nn.Module] = [Mixing(64, 48, normed, shortcut, activation) for _ in range(depth)]
    for block in body:
        draw(block, gain)
    return Mixer(body, 48, inputs, head)


class Growing(nn.Module):
    """Adds channels to those that it is given (DenseNet, Huang et al. 2017)."""

    def __init__(self, channels: int, growth: int, normed: bool, activation: type[nn.Module]) -> None:
        super().__init__()
        self.norm = nn.BatchNorm2d(channels) if normed else nn.Identity()
        self.act, self.filters = activation(), nn.Conv2d(channels, growth, 3, padding=1)

    def forward(self, x: Tensor) -> Tensor:
        return torch.cat([x, self.filters(self.act(self.norm(x)))], 1)


def dense(  # noqa: PLR0913 - one keyword for each fault
    depth: int,
    normed: bool = True,
    gain: float | None = HE,
    activation: type[nn.Module] = nn.ReLU,
    shift: float = 0.0,
    inputs: float = 1.0,
    probabilities: bool = False,
) -> nn.Module:
    """Two dense stages of convolutions with a transition between them."""
    layers: list[nn.Module] = [Times(inputs), nn.Conv2d(3, 16, 4, 4)]
    channels = 16
    for place in range(depth):
        if place == depth // 2:
            layers += [nn.Conv2d(channels, 16, 1), nn.AvgPool2d(2)]
            channels = 16
        layers.append(Growing(channels, 8, normed, activation))
        channels += 8
    last = nn.Linear(channels, CLASSES)
    body = nn.Sequential(*layers, activation(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), last)
    draw(body, gain)
    for module in body.modules():
        if shift and isinstance(module, Growing):
            nn.init.constant_(module.filters.bias, shift)  # type: ignore[arg-type]  # it has one
    return nn.Sequential(body, nn.Softmax(-1) if probabilities else nn.Identity())


class Bottleneck(nn.Module):
    """Narrow, filter, wide (He et al. 2016), with a projection where a stage begins."""

    def __init__(self, channels: int, wider: int, stride: int, normed: bool, shortcut: bool) -> None:
        super().__init__()

        def norm(size: int) -> nn.Module:
            return nn.GroupNorm(4, size) if normed else nn.Identity()

        inner = wider // 2
        self.narrow = nn.Sequential(nn.Conv2d(channels, inner, 1), norm(inner), nn.ReLU())
        self.filters = nn.Sequential(nn.Conv2d(inner, inner, 3, stride, 1), norm(inner), nn.ReLU())
        self.wide, self.shortcut = nn.Sequential(nn.Conv2d(inner, wider, 1), norm(wider)), shortcut
        self.project = nn.Conv2d(channels, wider, 1, stride) if channels != wider else nn.Identity()

    def forward(self, x: Tensor) -> Tensor:
        inside = self.wide(self.filters(self.narrow(x)))
        return torch.relu(self.project(x) + inside if self.shortcut else inside)


def bottleneck(  # noqa: PLR0913 - one keyword for each fault
    depth: int,
    normed: bool = True,
    gain: float | None = HE,
    bridges: bool = True,
    shortcuts: bool = True,
    head: float = 1.0,
    inputs: float = 1.0,
) -> nn.Module:
    """Bottlenecks in three stages; without bridges no shortcut leads from stage to stage, without shortcuts none."""
    body: list[nn.Module] = [Times(inputs), nn.Conv2d(3, 16, 3, 2, 1)]
    channels = 16
    for stage, wider in enumerate((16, 32, 64)):
        for place in range(depth):
            begins = place == 0 and stage > 0
            own = shortcuts and (bridges or not begins)
            body.append(Bottleneck(channels, wider, 2 if begins else 1, normed, own))
            channels = wider
    last = nn.Linear(64, CLASSES)
    network = nn.Sequential(*body, nn.AdaptiveAvgPool2d(1), nn.Flatten(), last)
    draw(network, gain)
    scale(last, head)
    return network


class Scores(nn.Module):
    """The scores of a model of `transformers`."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, codes: Tensor) -> Tensor:
        return self.model(input_ids=codes, use_cache=False).logits


def gpt2(
    depth: int, spread: float = 0.02, embedding: float = 1.0, branch: float = 1.0, activation: str = "gelu_new"
) -> nn.Module:
    """GPT-2 as `transformers` has it, small, with random weights."""
    from transformers import GPT2Config, GPT2LMHeadModel

    sizes = {"vocab_size": SCORES, "n_positions": CONTEXT, "n_embd": 48, "n_head": 4, "n_layer": depth}
    drop = dict.fromkeys(("resid_pdrop", "embd_pdrop", "attn_pdrop"), 0.0)
    config = GPT2Config(
        **sizes,
        **drop,
        initializer_range=spread,
        activation_function=activation,
        tie_word_embeddings=False,
        attn_implementation="eager",
        bos_token_id=0,
        eos_token_id=0,
    )
    model = GPT2LMHeadModel(config)
    scale(model.transformer.wte, embedding)
    for block in model.transformer.h:
        scale(block.attn.c_proj, branch)
        scale(block.mlp.c_proj, branch)
    return Scores(model)


Faults = tuple[dict[str, Any], ...]
BARE: dict[str, Any] = {"normed": False, "gain": None}
MIXERS: Faults = (
    {"shortcut": False, **BARE},
    {"normed": False, "gain": 3.0},
    {"shortcut": False, "activation": nn.Sigmoid, "normed": False},
    {"inputs": 0.001, "normed": False},
    {"head": 100.0},
)
DENSE: Faults = (
    {"normed": False, "gain": 4.0},
    {"activation": nn.Sigmoid, **BARE},
    {"shift": -5.0, "normed": False},
    {"probabilities": True},
    {"inputs": 100.0, "normed": False},
)
BOTTLENECKS: Faults = (
    {"shortcuts": False, **BARE},
    {"bridges": False, **BARE},
    {"normed": False, "gain": 2.5},
    {"head": 100.0},
    {"inputs": 0.001, **BARE},
)
GPTS: Faults = ({"spread": 1.0}, {"embedding": 2000.0}, {"branch": 200.0}, {"spread": 0.5, "activation": "relu"})

UNSEEN: tuple[tuple[str, str, Callable[..., nn.Module], tuple[int, ...], Faults], ...] = (
    ("mixer", "cifar10", mixer, (4, 12), MIXERS),
    ("dense", "cifar10", dense, (8, 24), DENSE),
    ("bottleneck", "cifar10", bottleneck, (2, 6), BOTTLENECKS),
    ("gpt2", "text", gpt2, (3, 8), GPTS),
)
