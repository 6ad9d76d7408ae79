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
    "means_add": lambda m, x, a, b, c, *_: m.out(F.relu(y := a(x)) + torch.cos(c(F.sigmoid(b(y))))),
}
WEIGHT, BIAS = 1.3**0.5, 0.4  # σ_w and σ_b


def make(name, **options):
    return Case(CASES[name], **options).double().train()


@torch.no_grad()
def draw(model, generator):
    """Independent Gaussian weights and biases."""
    for layer in model.modules():
        if isinstance(layer, nn.Linear):
            layer.weight.normal_(0, WEIGHT / layer.in_features**0.5, generator=generator)
            layer.bias.normal_(0, BIAS, generator=generator)


@torch.no_grad()
def typical(model):
    """The same module with weights of exactly the mean squares that `draw` has on average."""
    for layer in model.modules():
        if isinstance(layer, nn.Linear):
            layer.weight.fill_(WEIGHT / layer.in_features**0.5)
            layer.bias.fill_(BIAS)
    return model
