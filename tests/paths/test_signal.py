import math

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from tests.networks import Attention, LinearResidual, PostActivation, PreActivation, drawn, noise
from tests.paths.frozen_by_hand import (
    Perceptrons,
    batch_normed,
    coefficients,
    frozen_norm,
    frozen_relu,
    polynomial,
    post_activation_at,
)
from tests.tolerances import assert_close


@pytest.mark.parametrize("depth", [1, 4, 10])
def test_brute_force_over_all_paths(depth):
    model = drawn(Perceptrons(depth, hidden=8))
    inputs = noise(3, 3, seed=1)
    stack = coefficients(model, inputs)
    assert stack.shape == (depth + 1, 3, 2)
    expected = torch.stack([model.enumerated(sample) for sample in inputs], 1)
    assert bool((expected.flatten(1).norm(dim=1) > 0).all())  # a seed in which every order is there
    for order in range(depth + 1):  # each order by itself: small ones must be as accurate as large ones
        assert_close(stack[order], expected[order].detach(), relative=1e-11)


def test_a_linear_network_is_a_product_of_matrix_polynomials():
    model = drawn(LinearResidual(depth=6, width=4, scale=0.7))
    inputs = noise(5, 4)
    product = [torch.eye(4)]
    for layer in model.layers:
        grown = [torch.zeros(4, 4) for _ in range(len(product) + 1)]
        for order, matrix in enumerate(product):
            grown[order] = grown[order] + matrix
            grown[order + 1] = grown[order + 1] + 0.7 * layer.weight @ matrix
        product = grown
    assert_close(coefficients(model, inputs), torch.stack([inputs @ matrix.T for matrix in product]).detach())


def test_equal_blocks_have_binomial_coefficients():
    model = LinearResidual(depth=30, width=1, scale=0.25)
    for layer in model.layers:
        nn.init.ones_(layer.weight)
    expected = torch.tensor([math.comb(30, order) * 0.25**order for order in range(31)])
    assert_close(coefficients(model, torch.ones(1, 1)).flatten() / expected, torch.ones(31))


@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize("t", [0.37, -1.3])
def test_post_activation_network_frozen_at_other_factors(training, t):
    """Agreement at t = 1 alone would not tell good coefficients from bad ones."""
    blocks = [PostActivation(2, 2), PostActivation(2, 4, 2, nn.Conv2d(2, 4, 1, 2)), PostActivation(4, 4)]
    model = drawn(nn.Sequential(*blocks)).train(training)
    for norm in (m for m in model.modules() if isinstance(m, nn.BatchNorm2d)):
        norm.running_mean.copy_(noise(len(norm.running_mean)) / 3)
        norm.running_var.copy_(noise(len(norm.running_var)).square() + 0.5)
    inputs = noise(4, 2, 6, 6)
    stack = coefficients(model, inputs)
    with torch.no_grad():
        assert_close(polynomial(stack, t), post_activation_at(model, inputs, inputs, t))
        assert_close(polynomial(stack, 1.0), post_activation_at(model, inputs, inputs, 1.0))


@pytest.mark.parametrize("training", [False, True])
def test_pre_activation_network_with_a_shared_first_activation(training):
    model = drawn(PreActivation(2, 4, 2)).train(training)
    inputs = noise(4, 2, 6, 6)
    with torch.no_grad():
        n = batch_normed(model.bn1, inputs)
        a, z = F.relu(n), frozen_relu(n, frozen_norm(model.bn1, inputs, inputs))
        u = model.conv1(a)
        m = batch_normed(model.bn2, u)
        branch = model.conv2(frozen_relu(m, frozen_norm(model.bn2, u, model.conv1(z))))
        assert_close(coefficients(model, inputs), torch.stack([model.project(z), branch]))


class Transformer(nn.Module):
    """Two pre-norm blocks: attention and a gated GELU, as today's language models have them."""

    def __init__(self, width: int = 4) -> None:
        super().__init__()
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(2))
        self.attention = Attention(width)
        self.gate, self.up, self.down = nn.Linear(width, 6), nn.Linear(width, 6), nn.Linear(6, width)

    def forward(self, x):
        x = x + self.attention(self.norms[0](x))
        h = self.norms[1](x)
        return x + self.down(F.gelu(self.gate(h)) * self.up(h))

    def frozen(self, x, t):
        """Attention weights, scales of the norms and the gate as constants; z is the signal."""
        a, first = self.norms[0](x), self._norm(0, x, x)
        weights = (self.attention.query(a) @ self.attention.key(a).mT / x.shape[-1] ** 0.5).softmax(-1)
        z = x + t * self.attention.out(weights @ self.attention.value(first))
        x = x + self.attention(a)
        h = self.norms[1](x)
        return z + t * self.down(F.gelu(self.gate(h)) * self.up(self._norm(1, x, z)))

    def _norm(self, index, x, z):
        norm = self.norms[index]
        scale = (x.var(-1, unbiased=False, keepdim=True) + norm.eps).rsqrt()
        return (z - z.mean(-1, keepdim=True)) * scale * norm.weight + norm.bias


@pytest.mark.parametrize("t", [1.0, 0.37, -1.3])
def test_transformer_frozen_at_other_factors(t):
    model, inputs = drawn(Transformer()), noise(2, 5, 4)
    with torch.no_grad():
        assert_close(polynomial(coefficients(model, inputs), t), model.frozen(inputs, t))
        assert_close(model.frozen(inputs, 1.0), model(inputs))


def test_truncation_keeps_the_lower_orders_as_they_are():
    model, inputs = drawn(Perceptrons(6)), noise(3, 3)
    assert_close(coefficients(model, inputs, most=2), coefficients(model, inputs)[:3])
    assert coefficients(model, inputs, most=0).shape[0] == 1


@pytest.mark.slow
def test_single_precision_is_accurate_in_every_order():
    """About 54 · 4 roundings of 6e-8 each, in coefficients that span many powers of ten."""
    model, inputs = drawn(Perceptrons(54, width=8, hidden=16)), noise(2, 8)
    double = coefficients(model, inputs)
    single = coefficients(model.float(), inputs.float()).double()
    sizes = double.flatten(1).norm(dim=1)
    assert sizes.max() / sizes.min() > 1e8
    assert float(((single - double).flatten(1).norm(dim=1) / sizes).max()) < 54 * 4 * 6e-8
