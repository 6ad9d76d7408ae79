"""Hand-written networks, one for each way to write a join and each addition that is none."""

from dataclasses import dataclass, field
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn
from torch.nn.utils.parametrizations import weight_norm

from tests.networks import (
    Attention,
    CrossAttending,
    Formula,
    LinearResidual,
    Pooled,
    PostActivation,
    PreActivation,
    SqueezeExcitation,
    StochasticDepth,
    Truncated,
    UNet,
    chain,
    linear,
    mlp,
    noise,
)


@dataclass(frozen=True)
class Case:
    """A network, its inputs, and of each block its name, shortcut kind and branch depth."""

    build: Any
    blocks: list[tuple[str, str, int]]
    inputs: Any = field(default_factory=lambda: (noise(2, 3),))


def image(width: int = 4) -> tuple[torch.Tensor]:
    return (noise(2, width, 8, 8),)


def one(build: Any, name: str = "f", kind: str = "identity", depth: int = 1, inputs: Any = None) -> Case:
    return Case(build, [(name, kind, depth)], (noise(2, 3),) if inputs is None else inputs)


def none(build: Any, inputs: Any = None) -> Case:
    return Case(build, [], (noise(2, 3),) if inputs is None else inputs)


def formula(rule: Any, **parts: Any) -> Any:
    """A builder, so that each test gets its own network."""
    return lambda: Formula(rule, **{name: part() for name, part in parts.items()})


def vector(size: int = 3) -> Any:
    return lambda: nn.Parameter(torch.rand(size))


def matrix(size: int = 3) -> Any:
    return lambda: nn.Parameter(torch.rand(size, size))


def in_place(m: Any, x: torch.Tensor) -> torch.Tensor:
    y = m.f(x)
    x = x.clone()
    x += y
    return x


def rotary(m: Any, x: torch.Tensor) -> torch.Tensor:
    q = m.f(x)
    angle = torch.arange(4.0, dtype=x.dtype)
    left, right = q.chunk(2, -1)
    return q * angle.cos() + torch.cat([-right, left], -1) * angle.sin()


def nested(m: Any, x: torch.Tensor) -> torch.Tensor:
    h = m.f(x)
    return x + (h + m.g(h))


def nested_nonlinear(m: Any, x: torch.Tensor) -> torch.Tensor:
    return x + m.f(torch.tanh(x + m.g(x)))


def parallel(m: Any, x: torch.Tensor) -> torch.Tensor:
    normed = m.norm(x)
    return x + m.attention(normed) + m.mlp(normed)


def gathered(m: Any, x: torch.Tensor) -> torch.Tensor:
    normed = m.norm(x)
    return 0.5 * (m.attention(normed) + m.mlp(normed)) + x


def highway(m: Any, x: torch.Tensor) -> torch.Tensor:
    gate = torch.sigmoid(m.gate(x))
    return x * (1 - gate) + m.f(x) * gate


def scan(m: Any, x: torch.Tensor) -> torch.Tensor:
    step = F.softplus(m.f(x))
    decay, entering = torch.exp(-step * m.rate), step * x
    state = entering[:, 0]
    for place in range(1, x.shape[1]):
        state = decay[:, place] * state + entering[:, place]
    return state


def focal(m: Any, x: torch.Tensor) -> torch.Tensor:
    near, gates = m.project(x).split([4, 2], 1)
    far = torch.relu(m.second(near := torch.relu(m.first(near))))
    return near * gates[:, :1] + far * gates[:, 1:]


def scores(m: Any, x: torch.Tensor) -> torch.Tensor:
    query = m.q(x)
    moved = (query + m.shift) @ m.places.mT
    return (query @ m.k(x).mT + moved).softmax(-1) @ x


def wavenet(layers: int) -> Any:
    """Each gated branch is added to the stream, and by a layer of its own to what is returned."""

    def rule(m: Any, x: torch.Tensor) -> torch.Tensor:
        skips = 0
        for f, r, s in zip(m.f, m.r, m.s, strict=True):
            z = torch.tanh(f(x)) * torch.sigmoid(f(-x))
            x, skips = x + r(z), s(z) + skips
        return skips

    parts = {name: lambda: nn.ModuleList(linear(4, 4) for _ in range(layers)) for name in "frs"}
    return formula(rule, **parts)


def attention_gate(m: Any, x: torch.Tensor) -> torch.Tensor:
    coarse = m.down(x)
    score = m.psi(torch.relu(m.norm(m.g(coarse)) + m.x(x)))
    return m.up(x * torch.sigmoid(score))


def additive_attention(m: Any, x: torch.Tensor) -> torch.Tensor:
    query = torch.tanh(m.f(x)).mean(1, keepdim=True).expand_as(x)
    return (m.v(torch.tanh(m.q(query) + m.k(x))).softmax(1) * x).sum(1)


def flow(m: Any, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    (left, right), total = x.chunk(2, 1), 0
    for f in m.f:
        scale = torch.tanh(f(left))
        left, right, total = right * scale.exp(), left, total + scale.sum(1)
    return left, total


def straight_through(m: Any, x: torch.Tensor) -> torch.Tensor:
    z = m.f(x)
    nearest = m.codes(torch.cdist(z, m.codes.weight).argmin(1))
    return m.g(z + (nearest - z).detach())


def conditional_field(m: Any, x: torch.Tensor) -> torch.Tensor:
    scores = m.f(x)
    total = scores[:, 0]
    for place in range(1, scores.shape[1]):
        total = torch.logsumexp(total[:, :, None] + m.turns, 1) + scores[:, place]
    return total


def cast_mask(m: Any, ids: torch.Tensor) -> torch.Tensor:
    """The mask takes its type from the stream, as in many copies of Llama, and none of its numbers."""
    x = m.e(ids)
    mask = torch.full((4, 4), -1.0).triu(1).type_as(x)
    return x + m.f((x @ x.mT + mask).float().softmax(-1).type_as(x) @ x)


def positions_again(m: Any, x: torch.Tensor) -> torch.Tensor:
    places = m.p(x)
    stream = m.norm(places + m.f(places))
    return stream + m.g(stream + places)


def queries(m: Any, x: torch.Tensor) -> torch.Tensor:
    learned = m.learned.expand(len(x), -1, -1)
    return learned + m.g((m.f(learned) @ x.mT).softmax(-1) @ x)


def resnet(block: Any) -> Any:
    return lambda: nn.Sequential(block(4, 4), block(4, 8, 2), block(8, 8))


def projected(inputs: int, outputs: int, stride: int = 1) -> nn.Module:
    shortcut = nn.Sequential(nn.Conv2d(inputs, outputs, 1, stride), nn.BatchNorm2d(outputs)) if stride > 1 else None
    return PostActivation(inputs, outputs, stride, shortcut)


def pooled_projection(inputs: int, outputs: int, stride: int = 1) -> nn.Module:
    shortcut = nn.Sequential(nn.AvgPool2d(2), nn.Conv2d(inputs, outputs, 1)) if stride > 1 else None
    return PostActivation(inputs, outputs, stride, shortcut)


def with_shortcut(shortcut: Any) -> Any:
    return lambda inputs, outputs, stride=1: PostActivation(inputs, outputs, stride, shortcut() if stride > 1 else None)


class Scaled(nn.Module):
    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return 2 * self.inner(x)


class FixedFilters(nn.Module):
    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        self.register_buffer("filters", torch.ones(outputs, inputs, 2, 2))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return F.conv2d(x, self.filters, stride=2)


class PlusProjection(nn.Module):
    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        self.pool, self.project = Pooled(), nn.Conv2d(inputs, outputs, 1, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.pool(x) + self.project(x)


def three_convolutional(kind: str) -> list[tuple[str, str, int]]:
    return [("0", "identity", 2), ("1", kind, 2), ("2", "identity", 2)]


def mlp_to(outputs: int) -> nn.Module:
    return nn.Sequential(linear(3, 4), nn.ReLU(), linear(4, outputs))


def attention_parts() -> dict[str, Any]:
    return {"norm": lambda: nn.LayerNorm(4), "attention": Attention, "mlp": lambda: mlp(4)}


WAYS_TO_JOIN = {
    "plain": one(formula(lambda m, x: x + m.f(x), f=linear)),
    "branch first": one(formula(lambda m, x: m.f(x) + x, f=linear)),
    "two layers": one(formula(lambda m, x: x + m.f(x), f=mlp), depth=2),
    "in place": one(formula(in_place, f=linear)),
    "alpha": one(formula(lambda m, x: torch.add(x, m.f(x), alpha=0.3), f=linear)),
    "constant scale": one(formula(lambda m, x: x + 0.1 * m.f(x), f=linear)),
    "learned scale": one(formula(lambda m, x: x + m.scale * m.f(x), f=linear, scale=vector())),
    "subtracted": one(formula(lambda m, x: x - m.f(x), f=linear)),
    "only a scale": one(formula(lambda m, x: x + x * m.scale, scale=vector()), name="add", depth=0),
    "scaled shortcut": one(formula(lambda m, x: 0.5 * x + m.f(x), f=linear), kind="other"),
    "alpha on the shortcut": one(formula(lambda m, x: torch.add(m.f(x), x, alpha=0.3), f=linear), kind="other"),
    "negative shortcut": one(formula(lambda m, x: m.f(x) - x, f=linear), kind="other"),
    "fused scale": one(formula(lambda m, x: torch.addcmul(x, m.scale, m.f(x)), f=linear, scale=vector())),
    "fused product": one(formula(lambda m, x: torch.addmm(x, m.f(x), m.w), f=linear, w=matrix()), depth=2),
    "fused product with the only weight": one(
        formula(lambda m, x: torch.addmm(x, x.relu(), m.w), w=matrix()), name="addmm"
    ),
    "fused product of the shortcut itself": one(
        formula(lambda m, x: torch.addmm(x, x, m.w, alpha=0.5), w=matrix()), name="addmm"
    ),
    "fused product of a batch": one(
        formula(lambda m, x: torch.baddbmm(x, x.relu(), m.w.expand(2, 3, 3)), w=matrix()),
        name="baddbmm",
        inputs=(noise(2, 4, 3),),
    ),
    "fused products on both sides": one(
        formula(lambda m, x: torch.addmm(x @ m.v, x, m.w), v=matrix(), w=matrix()), name="addmm", kind="projection"
    ),
    "fused product of a sum": Case(
        formula(lambda m, x: torch.addmm(x, x + m.f(x), m.w), f=linear, w=matrix()),
        [("f", "identity", 1), ("addmm", "identity", 2)],
    ),
    "interpolated": one(formula(lambda m, x: torch.lerp(x, m.f(x), 0.3), f=linear), kind="other"),
    "highway": one(formula(highway, gate=linear, f=linear), kind="other"),
    "sum of a list": one(formula(lambda m, x: sum([x, m.f(x), m.g(x)]), f=linear, g=linear), name="g"),
    "sum from the right": one(formula(lambda m, x: x + (m.f(x) + m.g(x)), f=linear, g=linear), name="g"),
    "parallel attention": one(formula(parallel, **attention_parts()), "mlp", depth=2, inputs=(noise(2, 5, 4),)),
    "gathered attention": one(formula(gathered, **attention_parts()), "mlp", depth=2, inputs=(noise(2, 5, 4),)),
    "dropout in eval mode": one(
        lambda: Formula(lambda m, x: x + F.dropout(m.f(x), 0.5, m.training), f=linear()).eval()
    ),
    "dropout in train mode": one(formula(lambda m, x: x + F.dropout(m.f(x), 0.5), f=linear)),
    "stochastic depth in eval mode": one(
        lambda: Formula(lambda m, x: x + m.drop(m.f(x)), f=linear(), drop=StochasticDepth()).eval()
    ),
    "stochastic depth in train mode": one(formula(lambda m, x: x + m.drop(m.f(x)), f=linear, drop=StochasticDepth)),
    "broadcast branch": one(
        formula(lambda m, x: x + m.f(x.mean((2, 3)))[:, :, None, None], f=lambda: linear(4, 4)), inputs=image()
    ),
    "normalised weight": one(formula(lambda m, x: x + m.f(x), f=lambda: weight_norm(linear()))),
    "projection": one(
        formula(lambda m, x: m.p(x) + m.f(x), p=lambda: linear(3, 5), f=lambda: mlp_to(5)), depth=2, kind="projection"
    ),
    "projection of one branch layer": one(
        formula(lambda m, x: m.p(x) + m.scale * torch.tanh(m.f(x)), p=linear, f=linear, scale=vector()),
        kind="projection",
    ),
    "normalised shortcut": one(
        formula(lambda m, x: m.n(x) + m.f(x), n=lambda: nn.LayerNorm(3), f=linear), kind="other"
    ),
    "pool times a learned scale": one(
        formula(
            lambda m, x: m.scale * F.avg_pool2d(x, 2) + m.f(x),
            f=lambda: nn.Conv2d(4, 4, 2, 2),
            scale=vector(1),
        ),
        kind="other",
        inputs=image(),
    ),
    "squeeze and excitation": one(SqueezeExcitation, name="excite", depth=3, inputs=image()),
    "unbatched vector": one(formula(lambda m, x: x + m.f(x), f=linear), inputs=(noise(3),)),
    "complex numbers": one(
        formula(
            lambda m, x: torch.view_as_real(torch.view_as_complex(x) + torch.view_as_complex(m.f(x))),
            f=lambda: linear(2, 2),
        ),
        inputs=(noise(3, 2),),
    ),
    "linear chain": Case(LinearResidual, [(f"layers.{i}", "identity", 1) for i in range(3)]),
    "cross attention": Case(
        CrossAttending,
        [("self_attention", "identity", 2), ("cross_attention", "identity", 2)],
        (noise(2, 5, 4), noise(2, 6, 4, seed=1)),
    ),
    "post-activation, projection": Case(resnet(projected), three_convolutional("projection"), image()),
    "post-activation, pool and projection": Case(resnet(pooled_projection), three_convolutional("projection"), image()),
    "post-activation, truncated": Case(resnet(with_shortcut(Truncated)), three_convolutional("truncated"), image()),
    "post-activation, pooled": Case(resnet(with_shortcut(Pooled)), three_convolutional("pooling"), image()),
    "post-activation, scaled pool": Case(
        resnet(with_shortcut(lambda: Scaled(Pooled()))), three_convolutional("pooling"), image()
    ),
    "post-activation, fixed filters": Case(
        resnet(with_shortcut(lambda: FixedFilters(4, 8))), three_convolutional("pooling"), image()
    ),
    # everything learned is the branch, as in the theory of MacDonald et al.: the shortcut is what has no parameters
    "post-activation, pool plus projection": Case(
        resnet(with_shortcut(lambda: PlusProjection(4, 8))), three_convolutional("pooling"), image()
    ),
    "pre-activation": Case(resnet(PreActivation), three_convolutional("projection"), image()),
    "nested": Case(formula(nested, f=linear, g=linear), [("g", "identity", 1), ("f", "identity", 2)]),
    "nested behind a nonlinearity": Case(
        formula(nested_nonlinear, f=linear, g=linear), [("g", "identity", 1), ("f", "identity", 2)]
    ),
    "Fourier mixing": one(
        formula(lambda m, x: m.f(x + torch.fft.fft2(x).real), f=lambda: linear(4, 4)),
        name="add",
        depth=0,
        inputs=(noise(2, 5, 4),),
    ),
    "learned queries": one(
        formula(
            queries, learned=lambda: nn.Parameter(torch.rand(3, 4)), f=lambda: linear(4, 4), g=lambda: linear(4, 4)
        ),
        name="g",
        depth=2,
        inputs=(noise(2, 5, 4),),
    ),
    "positions added again": Case(
        formula(positions_again, p=linear, norm=lambda: nn.LayerNorm(3), f=linear, g=linear),
        [("f", "identity", 1), ("g", "identity", 1)],
    ),
    "a scan with a skip of its own": one(
        formula(
            lambda m, x: m.scale * x[:, -1] + torch.tanh(scan(m, x)),
            f=lambda: linear(4, 4),
            rate=vector(4),
            scale=vector(4),
        ),
        name="f",
        kind="other",
        inputs=(noise(2, 5, 4),),
    ),
    "a mask with the type of the stream": one(
        formula(cast_mask, e=lambda: nn.Embedding(9, 3), f=linear), inputs=(torch.tensor([[1, 2, 3, 4]]),)
    ),
    **{
        f"WaveNet of {layers} layers": Case(
            wavenet(layers), [(f"r.{i}", "identity", 2) for i in range(layers - 1)], (noise(2, 4),)
        )
        for layers in (2, 4)
    },
    "long additive skip": one(lambda: UNet(add=True), name="up", depth=3, inputs=image(2)),
}

NO_JOINS = {
    "chain": none(chain),
    "convolutional chain": none(lambda: nn.Sequential(nn.Conv2d(4, 4, 3), nn.ReLU(), nn.Conv2d(4, 4, 3)), image()),
    "tanh form of GELU": none(
        formula(lambda m, x: (lambda h: h * (1 + torch.tanh(0.8 * (h + 0.04 * h**3))))(m.f(x)), f=linear)
    ),
    "rotary embedding": none(formula(rotary, f=lambda: linear(3, 4))),
    "scaled by a constant": none(formula(lambda m, x: m.f(x + 0.1 * x), f=linear)),
    "doubled": none(formula(lambda m, x: m.f(x) + m.f(x), f=linear)),
    "parameter added": none(formula(lambda m, x: m.f(x) + m.scale, f=linear, scale=vector())),
    "words and positions": none(
        formula(
            lambda m, ids: m.words(ids) + m.places(torch.arange(4)) + m.kinds(ids % 2),
            words=lambda: nn.Embedding(9, 3),
            places=lambda: nn.Embedding(4, 3),
            kinds=lambda: nn.Embedding(2, 3),
        ),
        (torch.tensor([[1, 2, 3, 4]]),),
    ),
    "two towers": none(formula(lambda m, x, y: m.f(x) + m.g(y), f=linear, g=linear), (noise(2, 3), noise(2, 3))),
    "two losses": none(formula(lambda m, x: m.f(x).square().mean() + m.g(x).square().mean(), f=linear, g=linear)),
    "summed attention scores": none(
        formula(
            lambda m, x: (m.q(x) @ m.k(x).mT + m.r(x) @ m.k(x).mT).softmax(-1) @ x,
            q=lambda: linear(4, 4),
            k=lambda: linear(4, 4),
            r=lambda: linear(4, 4),
        ),
        (noise(2, 5, 4),),
    ),
    "attention gate of a U-Net": none(
        formula(
            attention_gate,
            **{name: lambda: nn.Conv2d(4, 4, 3, padding=1) for name in ("down", "g", "x")},
            norm=lambda: nn.BatchNorm2d(4),
            psi=lambda: nn.Conv2d(4, 1, 1),
            up=lambda: nn.Conv2d(4, 2, 1),
        ),
        image(),
    ),
    "additive attention": none(
        formula(additive_attention, **{name: lambda: linear(4, 4) for name in "fqk"}, v=lambda: linear(4, 1)),
        (noise(2, 5, 4),),
    ),
    "log-determinants of a flow": none(
        formula(flow, f=lambda: nn.ModuleList(linear(2, 2) for _ in range(4))), (noise(2, 4),)
    ),
    "mean and noise": none(
        formula(lambda m, x: m.f(x) + torch.randn(2, 3, dtype=x.dtype) * m.g(x).exp(), f=linear, g=linear)
    ),
    "straight-through estimate": none(formula(straight_through, f=linear, codes=lambda: nn.Embedding(5, 3), g=linear)),
    "conditional random field": none(
        formula(conditional_field, f=lambda: linear(3, 4), turns=matrix(4)), (noise(2, 5, 3),)
    ),
    "steps of a scan": none(formula(scan, f=lambda: linear(4, 4), rate=vector(4)), (noise(2, 5, 4),)),
    "experts": none(formula(lambda m, x: torch.sigmoid(m.gate(x)) * m.f(x) + m.g(x), gate=linear, f=mlp, g=mlp)),
    "focal contexts": none(
        formula(
            focal,
            project=lambda: nn.Conv2d(4, 6, 1),
            first=lambda: nn.Conv2d(4, 4, 3, padding=1),
            second=lambda: nn.Conv2d(4, 4, 3, padding=1),
        ),
        image(),
    ),
    "scores of contents and places": none(
        formula(
            scores,
            q=lambda: linear(4, 4),
            k=lambda: linear(4, 4),
            shift=vector(4),
            places=lambda: nn.Parameter(torch.rand(5, 4)),
        ),
        (noise(2, 5, 4),),
    ),
    "error of a loss": none(formula(lambda m, x: (m.f(x) - x).square().mean(), f=mlp)),
    "largest taken off an exponent": none(
        formula(lambda m, x: m.f((x - torch.maximum(x, m.scale)).exp()), f=linear, scale=vector())
    ),
    "learned positions, again": none(
        formula(lambda m, x: m.g(torch.relu(m.f(x + m.scale)) + m.scale), f=linear, g=linear, scale=vector())
    ),
    "gate only": none(formula(lambda m, x: x * torch.sigmoid(m.f(x)), f=linear)),
    "mean taken off": none(formula(lambda m, x: m.f(x) - m.f(x).mean(-1, keepdim=True), f=linear)),
    "whole numbers": none(formula(lambda m, x: m.f(x).argmax(-1) + m.f(x).argmin(-1), f=linear)),
}
