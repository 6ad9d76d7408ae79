"""Fully connected modules of every form that has a rule, wide enough to be near their limit, and draws of them."""

import torch
from torch import nn
from torch.nn import functional as F

FEATURES, WIDTH = 6, 256


class Case(nn.Module):
    """A function of linear layers made on demand, so that a case is one expression."""

    def __init__(self, forward, outputs=WIDTH, width=WIDTH, layers=3):
        super().__init__()
        sizes = [width if number else FEATURES for number in range(layers)]
        self.layers = nn.ModuleList(nn.Linear(size, width) for size in sizes)
        self.wide = nn.Linear(2 * width, outputs)
        self.out = nn.Linear(width, outputs)
        self.norm, self.rms, self.drop = nn.LayerNorm(width), nn.RMSNorm(width), nn.Dropout(0.3)
        self.scalar = nn.Parameter(torch.tensor(0.7))
        self.gains = nn.Parameter(torch.linspace(0.2, 1.4, width), requires_grad=False)
        self.norm.requires_grad_(False)
        self.rms.weight.requires_grad_(False)
        self.scalar.requires_grad_(False)
        self.compute = forward

    def forward(self, x):
        return self.compute(self, x, *self.layers)


def swish(z):
    return z * torch.sigmoid(z)


CASES = {
    "leaky": lambda m, x, a, b, *_: m.out(F.leaky_relu(b(F.leaky_relu(a(x), 0.2)), 0.2)),
    "abs_of_negative": lambda m, x, a, b, *_: m.out(F.relu(-b(torch.abs(a(x))))),
    "erf_gelu": lambda m, x, a, b, *_: m.out(F.gelu(b(torch.erf(a(x))))),
    "residual": lambda m, x, a, b, c, *_: m.out((y := a(x)) + m.scalar * c(F.relu(b(y)))),
    "scaled": lambda m, x, a, b, *_: m.out(torch.tanh(b(F.silu(1.5 * a(x)))) / 2 - 0.1),
    "concatenated": lambda m, x, a, b, *_: m.wide(F.gelu(torch.cat([y := a(x), b(torch.sin(y))], dim=1))),
    "layer_norm": lambda m, x, a, b, *_: m.out(torch.tanh(m.norm(b(m.rms(F.relu(a(x))))))),
    "norm_of_relu": lambda m, x, a, b, *_: m.out(F.relu(b(m.norm(F.relu(a(x)))))),
    "dropped": lambda m, x, a, b, *_: m.out(F.relu(b(m.drop(F.relu(a(x)))))),
    "by_hand": lambda m, x, a, b, *_: m.out(swish(b(swish(a(x))))),
    "shared": lambda m, x, a, b, *_: m.out(F.relu((y := b(a(x))) + b(torch.tanh(y)))),
    "recurrent": lambda m, x, a, b, *_: m.out(torch.tanh(b(torch.tanh(b(F.relu(a(x))) + a(0.5 * x))) + a(x.flip(1)))),
    "shared_relu": lambda m, x, a, b, c, *_: m.out(c(F.relu(a(x))) + c(F.leaky_relu(b(F.relu(a(x)))))),
    "post_activation": lambda m, x, a, b, c, *_: m.out(F.relu(F.relu(y := a(x)) + c(F.relu(b(F.relu(y)))))),
    "dependent": lambda m, x, a, b, *_: m.out((y := a(x)) + b(y) + F.relu(y)),
    "gated": lambda m, x, a, b, *_: m.out(((y := a(x)) + b(F.relu(y))) * torch.sigmoid(y)),
    "vectors": lambda m, x, a, b, *_: m.out(F.relu(m.gains * b(F.gelu(a(x) + m.gains)) + m.gains)),
    "vectors_add": lambda m, x, a, b, *_: m.out(
        F.relu(m.gains * (y := a(x)) + m.gains) + F.relu(m.gains * b(F.relu(y)))
    ),
    "relu_of_norm": lambda m, x, a, b, *_: m.out(F.relu(b(torch.tanh(m.norm(F.relu(a(x))))))),
    "parts_add": lambda m, x, a, b, *_: m.wide(
        torch.tanh(torch.cat([y := a(x), z := b(F.relu(y))], 1)) * torch.cat([z, y], 1)
    ),
    "divided": lambda m, x, a, b, *_: m.out(b(F.softsign(a(x)))),
    "highway": lambda m, x, a, b, c, *_: m.out(
        (t := torch.sigmoid(b(y := a(x)))) * F.relu(c(y)) + (1 - t) * y
    ),  # two parts of one gate whose product has mean 0
    "means_add": lambda m, x, a, b, c, *_: m.out(F.relu(y := a(x)) + torch.cos(c(F.sigmoid(b(y))))),
}
WEIGHT, BIAS = 1.3**0.5, 0.4  # σ_w and σ_b
MATRICES = nn.Linear | nn.Conv1d | nn.Conv2d | nn.Embedding


def fan_in(layer):
    return 1 if isinstance(layer, nn.Embedding) else layer.weight[0].numel()


def make(name, **options):
    return Case(CASES[name], **options).double().train()


@torch.no_grad()
def draw(model, generator):
    """Independent Gaussian weights and biases."""
    for layer in model.modules():
        if isinstance(layer, nn.MultiheadAttention):
            layer.in_proj_weight.normal_(0, WEIGHT / layer.embed_dim**0.5, generator=generator)
            layer.in_proj_bias.normal_(0, BIAS, generator=generator)
        if isinstance(layer, MATRICES):
            layer.weight.normal_(0, WEIGHT / fan_in(layer) ** 0.5, generator=generator)
            if getattr(layer, "bias", None) is not None:
                layer.bias.normal_(0, BIAS, generator=generator)


@torch.no_grad()
def typical(model):
    """The same module with weights of exactly the mean squares that `draw` has on average."""
    for layer in model.modules():
        if isinstance(layer, nn.MultiheadAttention):
            layer.in_proj_weight.fill_(WEIGHT / layer.embed_dim**0.5)
            layer.in_proj_bias.fill_(BIAS)
        if isinstance(layer, MATRICES):
            layer.weight.fill_(WEIGHT / fan_in(layer) ** 0.5)
            if getattr(layer, "bias", None) is not None:
                layer.bias.fill_(BIAS)
    return model


class Attention(nn.Module):
    """Self-attention with logits divided by the head's size; of queries that are the keys if `tied`."""

    def __init__(self, width, heads, tied, packed=False, power=1.0):
        super().__init__()
        self.heads, self.tied, self.power = heads, tied, power
        self.packed = nn.Linear(width, 3 * width) if packed else None
        self.query, self.key, self.value = (None if packed else nn.Linear(width, width) for _ in range(3))
        if tied:
            self.key = None
        self.out = nn.Linear(width, width)

    def forward(self, x):
        if self.packed is not None:
            q, k, v = self.packed(x).chunk(3, dim=-1)
        else:
            q = self.query(x)
            k, v = q if self.tied else self.key(x), self.value(x)
        q, k, v = (part.unflatten(-1, (self.heads, -1)).transpose(1, 2) for part in (q, k, v))
        y = F.scaled_dot_product_attention(q, k, v, scale=q.shape[-1] ** -self.power)
        return self.out(y.transpose(1, 2).flatten(2))


class Tokens(nn.Module):
    """A network of sequences: positions are added, then attention and a linear layer on each position."""

    def __init__(self, width, outputs, first, block, pooled=True):
        super().__init__()
        self.first, self.block, self.pooled = first, block, pooled
        self.place = nn.Parameter(torch.linspace(-1, 1, 5)[:, None] * torch.ones(width), requires_grad=False)
        self.norm, self.out = nn.LayerNorm(width), nn.Linear(width, outputs)
        self.norm.requires_grad_(False)

    def forward(self, x):
        y = self.first(x) + self.place
        y = y + self.block(self.norm(y))
        return self.out(y.mean(dim=1) if self.pooled else y[:, -1])


class MultiHead(nn.Module):
    """The attention of torch."""

    def __init__(self, width, heads):
        super().__init__()
        self.inner = nn.MultiheadAttention(width, heads, batch_first=True)

    def forward(self, x):
        return self.inner(x, x, x, need_weights=False)[0]


class Gains(nn.Module):
    """A residual convolution with a gain of each channel."""

    def __init__(self, width):
        super().__init__()
        self.one, self.other = nn.Conv2d(3, width, 3), nn.Conv2d(width, width, 1)
        self.gains = nn.Parameter(torch.linspace(0.2, 1.4, width)[:, None, None], requires_grad=False)

    def forward(self, x):
        y = self.one(x)
        return y + self.gains * self.other(F.relu(y))


class Moved(nn.Module):
    """Positions that are padded, turned, cut and repeated, and joined with themselves."""

    def __init__(self, width):
        super().__init__()
        self.one, self.other = nn.Conv2d(3, width, 2), nn.Conv2d(width, width, 1)

    def forward(self, x):
        y = F.pad(self.one(x).flip(2), (1, 0, 0, 1))[:, :, 1:, :3]
        y = F.interpolate(F.relu(y).transpose(2, 3), scale_factor=2)
        return F.relu(self.other(y)).unflatten(1, (2, -1))


class Twice(nn.Module):
    """A convolution whose weights are used twice."""

    def __init__(self, width):
        super().__init__()
        self.one, self.other = nn.Conv2d(3, width, 2), nn.Conv2d(width, width, 3, padding=1)

    def forward(self, x):
        y = self.other(torch.tanh(self.one(x)))
        return F.relu(y + self.other(F.relu(y)))


class Squeeze(nn.Module):
    """A gate of each channel, for all positions, from the mean over them."""

    def __init__(self, width):
        super().__init__()
        self.one, self.inner, self.gate = nn.Conv2d(3, width, 2), nn.Linear(width, width), nn.Linear(width, width)

    def forward(self, x):
        y = self.one(x)
        y = y * torch.sigmoid(self.gate(F.relu(self.inner(y.mean((2, 3))))))[:, :, None, None]
        return F.interpolate(y, size=(2, 2), mode="bilinear")


class ClassToken(nn.Module):
    """A token of its own before those of the inputs, and one that depends on them behind."""

    def __init__(self, width):
        super().__init__()
        self.first, self.mix, self.last = (nn.Linear(size, width) for size in (FEATURES, width, width))
        self.token = nn.Parameter(torch.randn(1, 1, width), requires_grad=False)

    def forward(self, x):
        y = self.first(x)
        joined = torch.cat([self.token.expand(len(x), -1, -1), y, torch.tanh(self.mix(y[:, :1]))], dim=1)
        return F.relu(self.last(joined))


class Gate(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.first = nn.Linear(FEATURES, 2 * width)

    def forward(self, x):
        one, other = self.first(x).chunk(2, dim=-1)
        return one * torch.sigmoid(other)


class Joined(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.one, self.other = nn.Conv2d(3, width, 2), nn.Conv2d(width, width, 1)

    def forward(self, x):
        y = self.one(x)
        return F.relu(torch.cat([y, self.other(torch.tanh(y))], dim=1))


def frozen_norm(kind, width):
    layer = kind(width).eval().requires_grad_(False)
    layer.running_mean += 0.3
    layer.running_var *= 2.0
    return layer


def fixed(layer):
    return layer.requires_grad_(False)


def conv(*sizes, **options):
    return nn.Conv2d(*sizes, **options)


IMAGE, LINE, WORDS, SEQUENCE = (3, 5, 4), (3, 7), (5,), (5, FEATURES)
# by name: the shape of an input, and the layers for a width and a number of outputs
SPATIAL = {
    "flatten": (
        IMAGE,
        lambda w, o: [
            conv(3, w, 3, padding=1),
            nn.ReLU(),
            conv(w, w, 3, stride=2, padding=1),
            nn.Tanh(),
            nn.Flatten(),
            nn.Linear(6 * w, o),
        ],
    ),
    "global_pool": (
        IMAGE,
        lambda w, o: [
            conv(3, w, 3, padding=1),
            nn.ReLU(),
            conv(w, w, 2, stride=2),
            nn.ReLU(),
            nn.AdaptiveAvgPool2d(1),
            nn.Flatten(),
            nn.Linear(w, o),
        ],
    ),
    "circular": (
        IMAGE,
        lambda w, o: [
            conv(3, w, 3, padding=1, padding_mode="circular"),
            nn.GELU(),
            conv(w, w, 3, padding=2, dilation=2),
            nn.ReLU(),
            nn.AvgPool2d(2, 1, padding=1),
            nn.Flatten(),
            nn.Linear(30 * w, o),
        ],
    ),
    "pooled_inside": (
        IMAGE,
        lambda w, o: [
            conv(3, w, 2),
            nn.ReLU(),
            nn.AvgPool2d(2),
            conv(w, w, 1),
            nn.Tanh(),
            nn.Flatten(),
            nn.Linear(2 * w, o),
        ],
    ),
    "one_dimension": (
        LINE,
        lambda w, o: [
            nn.Conv1d(3, w, 3, padding="same"),
            nn.ReLU(),
            nn.AvgPool1d(2),
            nn.Conv1d(w, w, 3, padding=1, groups=2),
            nn.ReLU(),
            nn.AdaptiveAvgPool1d(2),
            nn.Flatten(),
            nn.Linear(2 * w, o),
        ],
    ),
    "depthwise": (
        LINE,
        lambda w, o: [
            nn.Conv1d(3, w, 1),
            nn.ReLU(),
            nn.Conv1d(w, w, 3, padding=1, groups=w),
            nn.Conv1d(w, w, 1),
            nn.ReLU(),
            nn.Flatten(),
            nn.Linear(7 * w, o),
        ],
    ),
    "frozen_batch_norm": (
        IMAGE,
        lambda w, o: [conv(3, w, 2), frozen_norm(nn.BatchNorm2d, w), nn.ReLU(), nn.Flatten(), nn.Linear(12 * w, o)],
    ),
    "group_norm": (
        IMAGE,
        lambda w, o: [
            conv(3, w, 2),
            nn.ReLU(),
            fixed(nn.GroupNorm(1, w)),
            conv(w, w, 1),
            fixed(nn.GroupNorm(2, w)),
            nn.ReLU(),
            nn.AdaptiveAvgPool2d(1),
            nn.Flatten(),
            nn.Linear(w, o),
        ],
    ),
    "channel_dropout": (
        IMAGE,
        lambda w, o: [
            conv(3, w, 2),
            nn.ReLU(),
            nn.Dropout(0.4),
            conv(w, w, 2),
            nn.ReLU(),
            nn.Dropout2d(0.2),
            nn.AdaptiveAvgPool2d(1),
            nn.Flatten(),
            nn.Linear(w, o),
        ],
    ),
    "gains": (IMAGE, lambda w, o: [Gains(w), nn.Flatten(), nn.Linear(6 * w, o)]),
    "joined": (IMAGE, lambda w, o: [Joined(w), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(2 * w, o)]),
    "moved": (IMAGE, lambda w, o: [Moved(w), nn.Flatten(), nn.Linear(48 * w, o)]),
    "shared_pool": (IMAGE, lambda w, o: [Twice(w), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(w, o)]),
    "shared_flatten": (IMAGE, lambda w, o: [Twice(w), nn.Flatten(), nn.Linear(12 * w, o)]),
    "gate": ((FEATURES,), lambda w, o: [Gate(w), nn.Linear(w, o)]),
    "gated_linear": ((FEATURES,), lambda w, o: [nn.Linear(FEATURES, 2 * w), nn.GLU(), nn.Linear(w, o)]),
    "squeeze": (IMAGE, lambda w, o: [Squeeze(w), conv(w, w, 1), nn.ReLU(), nn.Flatten(), nn.Linear(4 * w, o)]),
    "class_token": (SEQUENCE, lambda w, o: [ClassToken(w), nn.Flatten(), nn.Linear(7 * w, o)]),
    "embedding": (
        WORDS,
        lambda w, o: [nn.Embedding(6, w), nn.Linear(w, w), nn.ReLU(), nn.Flatten(), nn.Linear(5 * w, o)],
    ),
    "attention_tied": (SEQUENCE, lambda w, o: [Tokens(w, o, nn.Linear(FEATURES, w), Attention(w, 1, tied=True))]),
    "attention": (
        SEQUENCE,
        lambda w, o: [Tokens(w, o, nn.Linear(FEATURES, w), Attention(w, 2, tied=False, packed=True), pooled=False)],
    ),
    "attention_words": (WORDS, lambda w, o: [Tokens(w, o, nn.Embedding(6, w), Attention(w, 2, tied=True))]),
    "attention_drawn": (
        SEQUENCE,
        lambda w, o: [Tokens(w, o, nn.Linear(FEATURES, w), Attention(w, 8, tied=False, power=0.5))],
    ),
    "multi_head": (SEQUENCE, lambda w, o: [Tokens(w, o, nn.Linear(FEATURES, w), MultiHead(w, 8), pooled=False)]),
}


def make_spatial(name, width=WIDTH, outputs=WIDTH):
    torch.manual_seed(0)
    return nn.Sequential(*SPATIAL[name][1](width, outputs)).double()


def spatial_inputs(name, samples=3):
    generator, shape = torch.Generator().manual_seed(7), SPATIAL[name][0]
    if shape == WORDS:
        return torch.randint(6, (samples, *shape), generator=generator)
    return torch.randn(samples, *shape, generator=generator, dtype=torch.float64)
