"""Whole networks against neural-tangents; `record_neural_tangents.py` made the values."""

import json
from functools import partial
from pathlib import Path

import pytest
import torch
from torch import nn

from skiplens.kernels import infinite_width
from tests.kernels.limit.record_neural_tangents import BIAS, NETWORKS, WEIGHT, inputs, mixing

RECORDED = json.loads(Path(__file__).with_name("neural_tangents.json").read_text())
WIDTH = 4


class Norm(nn.Module):
    """Layer norm of the channels, the last axis unless it is an image."""

    def forward(self, x):
        if x.ndim == 3:
            return nn.functional.layer_norm(x, x.shape[2:], eps=1e-12)
        return nn.functional.layer_norm(x.movedim(1, -1), x.shape[1:2], eps=1e-12).movedim(-1, 1)


class Attention(nn.Module):
    """As neural-tangents has it: queries are keys, no bias but at the end, logits divided by the size."""

    def __init__(self, tied=True, softmax=True, positions=0.0):
        super().__init__()
        self.query, self.value = (matrix(nn.Linear, WIDTH, WIDTH, bias=False) for _ in range(2))
        self.key = None if tied else matrix(nn.Linear, WIDTH, WIDTH, bias=False)
        self.out, self.softmax = matrix(nn.Linear, WIDTH, WIDTH), softmax
        table = torch.eye(WIDTH) * positions * WIDTH**0.5  # one row per position, independent of the others
        self.table = nn.Parameter(table) if positions else 0.0

    def forward(self, x):
        tokens = x.flatten(2).transpose(1, 2) if x.ndim == 4 else x
        tokens = tokens + self.table
        q, v = self.query(tokens)[:, None], self.value(tokens)[:, None]
        k, scale = (q, 1 / WIDTH) if self.key is None else (self.key(tokens)[:, None], WIDTH**-0.5)
        if self.softmax:
            heads = nn.functional.scaled_dot_product_attention(q, k, v, scale=scale)
        else:
            heads = scale * (q @ k.mT) @ v
        found = self.out(heads[:, 0])
        return found.transpose(1, 2).unflatten(2, x.shape[2:]) if x.ndim == 4 else found


class Residual(nn.Module):
    def __init__(self, *branch):
        super().__init__()
        self.branch = nn.Sequential(*branch)

    def forward(self, x):
        return x + self.branch(x)


class Mean(nn.Module):
    def forward(self, x):
        return x.mean(dim=tuple(range(2, x.ndim)) if x.ndim == 4 else 1)


class Pointwise(nn.Module):
    def __init__(self, function):
        super().__init__()
        self.function = function

    def forward(self, x):
        return self.function(x)


class Lines(nn.Module):
    """A convolution of sequences with the channels last, as attention reads them."""

    def __init__(self, inner):
        super().__init__()
        self.inner = inner

    def forward(self, x):
        return self.inner(x.transpose(1, 2)).transpose(1, 2)


class Several(nn.Module):
    """Matrices beside each other, then their product, with gates, or all together."""

    def __init__(self, joins, *layers):
        super().__init__()
        self.layers, self.joins = nn.ModuleList(layers), joins

    def forward(self, x):
        return self.joins(*(layer(x) for layer in self.layers))


class Mix(nn.Module):
    """A matrix between positions."""

    def __init__(self, tokens):
        super().__init__()
        self.matrix = nn.Parameter(torch.from_numpy(mixing(tokens)), requires_grad=False)

    def forward(self, x):
        return self.matrix @ x


def sigmoid_like(z):
    return (torch.erf(z / 2.4020563531719796) + 1) / 2  # the constant of neural-tangents


def matrix(kind, *sizes, **options):
    """A layer with weights of exactly the wanted mean square."""
    layer = kind(*sizes, **options)
    nn.init.constant_(layer.weight, WEIGHT / layer.weight[0].numel() ** 0.5)
    if layer.bias is not None:
        nn.init.constant_(layer.bias, BIAS)
    return layer


CONVOLUTIONS = {
    "same": {"kernel_size": 3, "padding": 1},
    "valid": {"kernel_size": (2, 3)},
    "strided": {"kernel_size": 3, "stride": 2},
    "circular": {"kernel_size": 3, "padding": 1, "padding_mode": "circular"},
    "same_strided": {"kernel_size": 3, "stride": 2, "padding": 1},
    "grouped": {"kernel_size": 3, "padding": 1, "groups": 2},
    "grouped_strided": {"kernel_size": 3, "stride": 2, "groups": 2},
    "circular_strided": {"kernel_size": 3, "stride": 2, "padding": 1, "padding_mode": "circular"},
}
LINES = {
    "conv1d": {"kernel_size": 3, "padding": 1},
    "conv1d_strided": {"kernel_size": 2, "stride": 2},
    "circular_line": {"kernel_size": 3, "padding": 1, "padding_mode": "circular"},
}
BRANCHES = {  # what joins them, and each
    "gate": (lambda one, other: sigmoid_like(one) * other, ("dense", "dense")),
    "image_gate": (lambda one, other: sigmoid_like(one) * other, ("same", "circular")),
    "three": (lambda one, other, last: sigmoid_like(one) * torch.relu(other) * torch.erf(last), ("dense",) * 3),
    "concat": (lambda one, other: torch.cat([one, torch.relu(other)], dim=1), ("dense", "dense")),
    "image_concat": (lambda one, other: torch.cat([one, torch.relu(other)], dim=1), ("same", "same")),
    "joined": (lambda one, other: torch.cat([one, other], dim=1), ("dense", "dense")),
}
FUNCTIONS = {
    "erf": torch.erf,
    "negative": lambda z: torch.where(z > 0, 1.5 * z, -0.5 * z),
    "abs": torch.abs,
    "sin": lambda z: 1.2 * torch.sin(0.7 * z + 0.3),
    "cos": torch.cos,
    "crop": lambda x: x[:, :, 1:5, ::2],
    "sequence_norm": lambda x: nn.functional.layer_norm(x, x.shape[1:], eps=1e-12),
    "sign": torch.sign,
    "square": torch.square,
    "cube": lambda z: z**3,
    "bell": lambda z: torch.exp(-(z**2)),
    "sigmoid_like": sigmoid_like,
}
OTHERS = {
    "relu": nn.ReLU, "leaky": lambda: nn.LeakyReLU(0.2), "gelu": nn.GELU, "gelu_tanh": lambda: nn.GELU("tanh"),
    "tanh": nn.Tanh, "sigmoid": nn.Sigmoid, "silu": nn.SiLU, "softplus": nn.Softplus, "mish": nn.Mish,
    "norm": Norm, "image_norm": lambda: nn.GroupNorm(1, WIDTH, eps=1e-12), "dropout": lambda: nn.Dropout(0.3),
    "average": lambda: nn.AvgPool2d(2), "overlapping": lambda: nn.AvgPool2d(3, 1, padding=1),
    "sums": lambda: nn.AvgPool2d(2, divisor_override=1), "flatten": nn.Flatten, "global": Mean,
    "global_sum": lambda: Pointwise(lambda x: x.sum(dim=(2, 3))), "attention": Attention,
    "image_attention": Attention, "linear_attention": partial(Attention, tied=False, softmax=False),
    "attention_numbers": partial(Attention, softmax=False), "position_attention": partial(Attention, positions=0.8),
    "line_average": lambda: Lines(nn.AvgPool1d(3, 2)),
    "edges": lambda: nn.AvgPool2d(3, 2, padding=1, count_include_pad=False),
    "nearest": lambda: nn.Upsample(6), "bilinear": lambda: nn.Upsample(8, mode="bilinear"),
    **{name: partial(Pointwise, function) for name, function in FUNCTIONS.items()},
}  # fmt: skip


def weighted(word, size):
    """A layer of weights with so many coordinates before it; None for other words."""
    if word == "dense":
        return matrix(nn.Linear, size, WIDTH)
    if word in CONVOLUTIONS:
        return matrix(nn.Conv2d, size, WIDTH, **CONVOLUTIONS[word])
    if word in LINES:
        return Lines(matrix(nn.Conv1d, size, WIDTH, **LINES[word]))
    if word in BRANCHES:
        joins, words = BRANCHES[word]
        return Several(joins, *(weighted(inner, size) for inner in words))
    return nn.Sequential(matrix(nn.Linear, size, WIDTH), nn.ReLU()) if word == "relu_of_dense" else None


def network(words, example):
    layers, stack = [], []
    for word in words:
        size = 1 if not layers and not stack else WIDTH
        if word == "+":
            stack.append(layers)
            layers = []
            continue
        if word == "=":
            branch, layers = layers, stack.pop()
            layers.append(Residual(*branch))
            continue
        value = nn.Sequential(*(stack[-1] if stack else []), *layers).double()(example) if size > 1 else example
        layer = weighted(word, value.shape[-1 if value.ndim < 4 else 1])
        layers.append(Mix(value.shape[1]) if word == "mix" else layer or OTHERS[word]())
    return nn.Sequential(*layers).double()


@pytest.mark.parametrize("name", NETWORKS)
def test_same_kernels_as_neural_tangents(name):
    shape, words = NETWORKS[name]
    X = torch.from_numpy(inputs(shape))
    X = X.movedim(-1, 1).contiguous() if X.ndim == 4 else X
    kernel = infinite_width(network(words, X), X, parameterisation="ntk")
    for quantity in ("nngp", "ntk"):
        wanted = torch.tensor(RECORDED[name][quantity], dtype=torch.float64)
        found = kernel.matrix(quantity, X)
        # an angle of an input with itself is 2e-8 there and 0 here, and the slope of the tangent kernel shows it
        torch.testing.assert_close(found, wanted, rtol=1e-6, atol=1e-6 * float(wanted.abs().max()))
