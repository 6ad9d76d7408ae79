"""Networks of a wanted depth from a few choices: shortcut, branch scale, start of the branches, norm."""

import math
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor, nn

from skiplens.base import InvalidInputError, Randomness, own_random_state, refuse_if, seed_torch
from skiplens.zoo.layers import Residual
from skiplens.zoo.skips import IsometricPool
from skiplens.zoo.weight_laws import fill_weights_, he_weights, orthogonal_weights

Family = Literal["mlp", "resnet", "transformer"]
Branches = Literal["zero", "scaled", "plain"]
Norm = Literal["none", "layer", "batch"]
START = {"he": he_weights, "orthogonal": orthogonal_weights}
HEADS = 4
STAGES = 3


@dataclass(frozen=True)
class Blueprint:
    """What a network is to be; `build` makes it."""

    # ``"mlp"`` for tables, ``"resnet"`` for images, ``"transformer"`` for sequences of vectors or tokens
    family: Family
    inputs: tuple[int, ...]  # shape of one sample; (length, features) or, for tokens, (length,)
    outputs: int  # how many numbers it gives
    depth: int  # weight matrices in series, first and last included; an attention counts as one
    width: int  # units, channels of the first stage, or features of a token
    shortcut: int = 2  # layers that each shortcut passes by; 0 for none
    # how branches start: ``"zero"`` at the end, ``"scaled"`` by L^(−1/2) in size, or ``"plain"``
    branches: Branches = "zero"
    norm: Norm = "none"  # at the beginning of each branch (after each layer where there are no shortcuts)
    start: str = "he"  # the law of the weights
    vocabulary: int = 0  # how many tokens there are; 0 where inputs are numbers

    def __post_init__(self) -> None:
        """Refuse what cannot be built."""
        shapes = {"mlp": 1, "resnet": 3, "transformer": 1 if self.vocabulary else 2}
        refuse_if(self.family not in shapes, f"There is no family {self.family!r}; wanted one of {', '.join(shapes)}.")
        if len(self.inputs) != shapes[self.family]:
            raise InvalidInputError(f"A {self.family} takes samples of {shapes[self.family]} axes, got {self.inputs}.")
        if self.depth < 3 or min(self.width, self.outputs) < 1:
            raise InvalidInputError(
                f"depth is {self.depth}, width {self.width}, outputs {self.outputs}; wanted ≥ 3, 1, 1."
            )
        if self.family == "transformer" and (self.width % HEADS or self.norm == "batch"):
            raise InvalidInputError(f"A transformer has a width that {HEADS} divides and no batch norm.")

    @property
    def blocks(self) -> int:
        """How many residual blocks there are."""
        return max(1, (self.depth - 2) // self.shortcut) if self.shortcut else 0

    def build(self, seed: int = 0) -> nn.Module:
        """The network; the seed names its weights."""
        randomness, device = Randomness(seed).child("blueprint"), torch.empty(0).device
        with own_random_state(device):
            seed_torch(randomness, device)
            network = _BUILDERS[self.family](self)
        fill_weights_(network, START[self.start], randomness)
        _start_branches(network, self)
        return network


class Attention(nn.Module):
    """Self-attention whose matrices are linear layers."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.mixed, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)

    def forward(self, x: Tensor) -> Tensor:
        """Return what each token gathers from all."""
        q, k, v = (part.unflatten(-1, (HEADS, -1)).transpose(1, 2) for part in self.mixed(x).chunk(3, -1))
        return self.out(nn.functional.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2))


class Tokens(nn.Module):
    """Tokens, or vectors, with learned places."""

    def __init__(self, plan: Blueprint) -> None:
        super().__init__()
        tokens = nn.Embedding(plan.vocabulary, plan.width) if plan.vocabulary else None
        self.content = tokens or nn.Linear(plan.inputs[1], plan.width)
        self.places = nn.Parameter(0.1 * torch.randn(plan.inputs[0], plan.width))

    def forward(self, x: Tensor) -> Tensor:
        """Return one vector a place."""
        return self.content(x) + self.places[: x.shape[1]]


class Mean(nn.Module):
    """The mean over tokens, or over pixels."""

    def __init__(self, axes: tuple[int, ...]) -> None:
        super().__init__()
        self.axes = axes

    def forward(self, x: Tensor) -> Tensor:
        """Return one vector a sample."""
        return x.mean(self.axes)


def _norm(kind: Norm, width: int, images: bool) -> list[nn.Module]:
    if kind == "layer":
        return [nn.GroupNorm(1, width) if images else nn.LayerNorm(width)]
    return [nn.BatchNorm2d(width) if images else nn.BatchNorm1d(width)] * (kind == "batch")


def _mlp(plan: Blueprint) -> nn.Module:
    width, norm, made = plan.width, plan.norm, list[nn.Module]([nn.Linear(plan.inputs[0], plan.width)])

    def layers(count: int) -> list[nn.Module]:
        return [part for _ in range(count) for part in (*_norm(norm, width, False), nn.ReLU(), nn.Linear(width, width))]

    made += [Residual(nn.Sequential(*layers(plan.shortcut))) for _ in range(plan.blocks)]
    made += [] if plan.shortcut else layers(plan.depth - 2)
    return nn.Sequential(*made, *_norm(plan.norm, width, False), nn.ReLU(), nn.Linear(width, plan.outputs))


def _resnet(plan: Blueprint) -> nn.Module:
    made: list[nn.Module] = [nn.Conv2d(plan.inputs[0], plan.width, 3, padding=1)]
    count, before = plan.blocks or plan.depth - 2, plan.width
    for number in range(count):
        stage = number * STAGES // count
        first = number > 0 and stage != (number - 1) * STAGES // count
        width, stride = plan.width * 2**stage, 2 if first else 1
        pieces: list[nn.Module] = []
        for place in range(plan.shortcut or 1):
            into = before if place == 0 else width
            conv = nn.Conv2d(into, width, 3, stride if place == 0 else 1, padding=1)
            pieces += [*_norm(plan.norm, into, True), nn.ReLU(), conv]
        pool = IsometricPool(2, before, width) if first else None  # half the pixels and twice the channels
        made += [Residual(nn.Sequential(*pieces), pool)] if plan.shortcut else pieces
        before = width
    made += [*_norm(plan.norm, before, True), nn.ReLU(), Mean((2, 3))]
    return nn.Sequential(*made, nn.Linear(before, plan.outputs))


def _transformer(plan: Blueprint) -> nn.Module:
    width, made = plan.width, list[nn.Module]([Tokens(plan)])
    for number in range(plan.blocks or (plan.depth - 2) // 2):
        inner: list[nn.Module] = [Attention(width)]
        if number % 2:
            inner = [nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width)]
        branch = nn.Sequential(*_norm(plan.norm, width, False), *inner)
        made.append(Residual(branch) if plan.shortcut else branch)
    return nn.Sequential(*made, *_norm(plan.norm, width, False), Mean((1,)), nn.Linear(width, plan.outputs))


_BUILDERS = {"mlp": _mlp, "resnet": _resnet, "transformer": _transformer}


def _start_branches(network: nn.Module, plan: Blueprint) -> None:
    """Zero or scale the last matrix of each branch, and make the outputs small."""
    factor = {"zero": 0.0, "scaled": 1 / math.sqrt(max(1, plan.blocks)), "plain": 1.0}[plan.branches]
    with torch.no_grad():
        for module in network.modules():
            if isinstance(module, Residual):
                *_, last = (part for part in module.branch.modules() if isinstance(part, nn.Linear | nn.Conv2d))
                last.weight.mul_(factor)
        *_, head = (part for part in network.modules() if isinstance(part, nn.Linear))
        head.weight.mul_(0.3)
