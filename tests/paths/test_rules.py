"""Each frozen operation against its definition, on a signal with two coefficients, c₀ = x and c₁ = W x."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from skiplens.graph.dissect import dissect
from skiplens.paths.plan import frozen_plan
from tests.networks import Formula, drawn, noise
from tests.paths.frozen_by_hand import coefficients
from tests.tolerances import assert_close


def secant(function):
    return lambda u, c, r: c * function(u) / u


def centred(c, axes):
    return c - c.mean(axes, keepdim=True)


def scale(u, axes, epsilon=1e-5):
    return (u.var(axes, unbiased=False, keepdim=True) + epsilon).rsqrt()


def first(r):
    """One for the coefficient that holds the constants."""
    return float(r == 0)


def chosen(u, c):
    """The entries of c where the largest of each 2×2 patch of u is."""
    places = F.max_pool2d(u, 2, return_indices=True)[1]
    return c.flatten(2).gather(2, places.flatten(2)).view(places.shape)


def attended(u, c):
    return (u @ u.mT / u.shape[-1] ** 0.5).softmax(-1) @ c


MASK = noise(4, 4) > 0
OPERATIONS = {
    "relu": (F.relu, lambda u, c, r: (u > 0) * c),
    "leaky relu": (lambda h: F.leaky_relu(h, 0.1), lambda u, c, r: torch.where(u > 0, 1.0, 0.1) * c),
    "gelu": (F.gelu, secant(F.gelu)),
    "gelu by tanh": (lambda h: F.gelu(h, approximate="tanh"), secant(lambda u: F.gelu(u, approximate="tanh"))),
    "gelu written out": (
        lambda h: 0.5 * h * (1 + torch.tanh(0.8 * (h + 0.04 * h**3))),
        secant(lambda u: 0.5 * u * (1 + torch.tanh(0.8 * (u + 0.04 * u**3)))),
    ),
    "silu": (F.silu, secant(F.silu)),
    "tanh": (torch.tanh, secant(torch.tanh)),
    "square": (lambda h: h**2, lambda u, c, r: u * c),
    "product with itself": (lambda h: h * h, lambda u, c, r: u * c),
    "clamp": (lambda h: h.clamp(-0.5, 1), lambda u, c, r: _clamped(u, c, r)),
    "gate": (lambda h: h * torch.sigmoid(h), lambda u, c, r: c * torch.sigmoid(u)),
    "highway": (
        lambda h: torch.sigmoid(h) * h.mT + (1 - torch.sigmoid(h)) * h,
        lambda u, c, r: torch.sigmoid(u) * c.mT + (1 - torch.sigmoid(u)) * c,
    ),
    "quotient": (lambda h: h / (1 + h.exp()), lambda u, c, r: c / (1 + u.exp())),
    "softmax attention": (
        lambda h: (h @ h.mT / 2).softmax(-1) @ h,
        lambda u, c, r: (u @ u.mT / 2).softmax(-1) @ c,
    ),
    "fused attention": (lambda h: F.scaled_dot_product_attention(h, h, h), lambda u, c, r: attended(u, c)),
    "layer norm": (lambda h: F.layer_norm(h, (4,)), lambda u, c, r: centred(c, -1) * scale(u, -1)),
    "root mean square norm": (
        lambda h: F.rms_norm(h, (4,), eps=1e-5),
        lambda u, c, r: c * (u.square().mean(-1, keepdim=True) + 1e-5).rsqrt(),
    ),
    "group norm": (
        lambda h: F.group_norm(h, 1, torch.full((3,), 2.0), torch.ones(3)),
        lambda u, c, r: 2 * centred(c, (1, 2, 3)) * scale(u, (1, 2, 3)) + first(r),
    ),
    "instance norm": (lambda h: F.instance_norm(h), lambda u, c, r: centred(c, (2, 3)) * scale(u, (2, 3))),
    "batch norm": (
        lambda h: F.batch_norm(h, None, None, torch.full((3,), 2.0), torch.ones(3), True),
        lambda u, c, r: 2 * centred(c, (0, 2, 3)) * scale(u, (0, 2, 3)) + first(r),
    ),
    "max pool": (lambda h: F.max_pool2d(h, 2), lambda u, c, r: chosen(u, c)),
    "largest": (lambda h: h.amax((2, 3)), lambda u, c, r: _largest(u, c)),
    "largest on an axis": (lambda h: h.max(-1).values, lambda u, c, r: c.gather(-1, u.argmax(-1, True)).squeeze(-1)),
    "mean": (lambda h: h.mean((2, 3)), lambda u, c, r: c.mean((2, 3))),
    "plus a constant": (lambda h: 3 - h, lambda u, c, r: 3 * first(r) - c),
    "beside a constant": (
        lambda h: torch.cat([h, torch.ones(2, 3, 4, 1)], -1),
        lambda u, c, r: torch.cat([c, first(r) * torch.ones(2, 3, 4, 1)], -1),
    ),
    "padded": (lambda h: F.pad(h, (1, 0), value=2.0), lambda u, c, r: F.pad(c, (1, 0), value=2 * first(r))),
    "chosen by a mask": (
        lambda h: torch.where(MASK.to(h.device), h, 5.0),
        lambda u, c, r: torch.where(MASK, c, 5 * first(r)),
    ),
    "filled by a mask": (lambda h: h.masked_fill(MASK, -1.0), lambda u, c, r: c.masked_fill(MASK, -first(r))),
    "split": (lambda h: torch.cat(h.split(2, -1)[::-1], -1), lambda u, c, r: c.roll(2, -1)),
    "einsum": (
        lambda h: torch.einsum("bcij,bckj->bcik", h.softmax(-1), h),
        lambda u, c, r: u.softmax(-1) @ c.mT,
    ),
}


def _clamped(u, c, r):
    inside = (u > -0.5) & (u < 1)
    return inside * c + first(r) * ~inside * u.clamp(-0.5, 1)


def _largest(u, c):
    return c.flatten(2).gather(2, u.flatten(2).argmax(2, True)).squeeze(2)


@pytest.mark.parametrize(("operation", "frozen"), OPERATIONS.values(), ids=OPERATIONS)
def test_frozen_operation(operation, frozen):
    model = drawn(Formula(lambda m, x: operation(x + m.f(x)), f=nn.Linear(4, 4, bias=False)))
    inputs = noise(2, 3, 4, 4, seed=3)
    with torch.no_grad():
        parts = [inputs, model.f(inputs)]
        expected = torch.stack([frozen(sum(parts), part, order) for order, part in enumerate(parts)])
        assert_close(expected.sum(0), model(inputs))  # the definition itself
        assert_close(coefficients(model, inputs), expected)


JOINS = {
    "subtracted": lambda m, x: x - m.f(x),
    "scaled by the addition": lambda m, x: torch.add(x, m.f(x), alpha=0.5),
    "branch first": lambda m, x: m.f(x) + x,
    "fused product": lambda m, x: torch.addcmul(x, m.f(x), torch.full((4,), 0.3)),
    "fused matrix product": lambda m, x: torch.addmm(x, m.f(x), 0.3 * torch.ones(4, 4)),
    "two branches": lambda m, x: x + m.f(x) + m.g(x),
}


@pytest.mark.parametrize("formula", JOINS.values(), ids=JOINS)
def test_every_way_to_join(formula):
    model = drawn(Formula(formula, f=nn.Linear(4, 4, bias=False), g=nn.Linear(4, 4)))
    inputs = noise(3, 4)
    with torch.no_grad():
        assert_close(coefficients(model, inputs), torch.stack([inputs, model(inputs) - inputs]))


def test_a_block_in_the_branch_of_a_block_counts_once_more():
    inner = Formula(lambda m, x: x + m.f(x), f=nn.Linear(3, 3, bias=False))
    model = drawn(Formula(lambda m, x: x + m.g(m.inner(x)), inner=inner, g=nn.Linear(3, 3, bias=False)))
    inputs = noise(2, 3)
    with torch.no_grad():
        expected = torch.stack([inputs, model.g(inputs), model.g(inner.f(inputs))])
    assert_close(coefficients(model, inputs), expected)


def test_where_a_pre_activation_is_zero_the_gate_is_the_slope():
    model = Formula(lambda m, x: F.silu(x + m.f(x)), f=nn.Linear(2, 2, bias=False))
    model.f.weight.data = -torch.eye(2)
    assert_close(coefficients(model, torch.ones(1, 2)), torch.tensor([[[0.5, 0.5]], [[-0.5, -0.5]]]))


def test_queries_and_keys_need_no_stack():
    def formula(m, x):
        return x + F.scaled_dot_product_attention(m.query(x), m.key(x), m.value(x))

    model = drawn(Formula(formula, query=nn.Linear(4, 4), key=nn.Linear(4, 4), value=nn.Linear(4, 4)))
    network = dissect(model, noise(2, 5, 4))
    plan = frozen_plan(network, network.node(network.output))
    layers = [node for node in network.graph.nodes if "linear" in str(node.target)]
    assert sum(node in plan.needed for node in layers) == 1
