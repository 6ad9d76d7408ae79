import itertools
import math

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from skiplens.graph.dissect import dissect
from skiplens.paths.backward import weight_paths
from tests.networks import Attention, Formula, LinearResidual, PostActivation, drawn, linear, mlp, noise
from tests.paths.frozen_by_hand import Perceptrons
from tests.tolerances import assert_close


def stacks(model, inputs, cotangent, names=None):
    network = dissect(model, inputs)
    wanted = names or [name for block in network.blocks for name in block.branch.parameters]
    return dict(weight_paths(network, wanted, cotangent))


def autograd(model, inputs, cotangent):
    names, parameters = zip(*model.named_parameters(), strict=True)
    found = torch.autograd.grad(model(inputs), parameters, cotangent, allow_unused=True)
    return dict(zip(names, found, strict=True))


def test_coefficients_of_a_linear_network_from_all_subsets_of_its_matrices():
    model, inputs, cotangent = drawn(LinearResidual(depth=4, width=3, scale=0.8)), noise(5, 3), noise(5, 3, seed=1)
    matrices = [0.8 * layer.weight.detach() for layer in model.layers]
    found = stacks(model, inputs, cotangent)
    for block in range(4):
        expected = torch.zeros(5, 3, 3)
        for used in itertools.product((0, 1), repeat=4):
            if used[block]:
                before, after = inputs.T, torch.eye(3)
                for other in range(4):
                    if used[other] and other < block:
                        before = matrices[other] @ before
                    if used[other] and other > block:
                        after = matrices[other] @ after
                expected[sum(used)] += 0.8 * after.T @ cotangent.T @ before.T
        assert_close(found[f"layers.{block}.weight"], expected)


def test_norms_follow_from_gram_matrices_as_the_note_has_them():
    """‖G_r‖² = Σ_{i,k} Σ_{b,b'} ⟨u_i^b, u_k^b'⟩ ⟨z_{r-1-i}^b, z_{r-1-k}^b'⟩, in the middle of three x + W relu(x)."""

    def rule(m, x):
        for f in (m.a, m.b, m.c):
            x = x + f(F.relu(x))
        return x

    bare = lambda: nn.Linear(3, 3, bias=False)  # noqa: E731 - three times the same part
    model, inputs, cotangent = drawn(Formula(rule, a=bare(), b=bare(), c=bare())), noise(4, 3), noise(4, 3, seed=2)
    first = inputs + model.a(F.relu(inputs))
    u = torch.stack([inputs, model.a(F.relu(inputs))]).detach() * (first > 0)  # what the middle matrix reads
    second = first + model.b(F.relu(first))
    back = (cotangent @ model.c.weight) * (second > 0)
    z = torch.stack([cotangent, back]).detach()
    stack = stacks(model, inputs, cotangent)["b.weight"]
    for r in range(4):
        pairs = [(i, r - 1 - i) for i in (0, 1) if 0 <= r - 1 - i <= 1]
        norm = sum(
            float(((u[i] @ u[k].T) * (z[j] @ z[q].T)).sum()) for (i, j), (k, q) in itertools.product(pairs, pairs)
        )
        energy = float(stack[r].square().sum()) if r < len(stack) else 0.0
        assert energy == pytest.approx(norm, rel=1e-12, abs=1e-14)


MODELS = {
    "perceptrons with biases": (lambda: Perceptrons(4, hidden=5), (4, 3)),
    "a weight fused with its addition": (
        lambda: Formula(
            lambda m, x: torch.addmm(m.f(x), torch.addmm(x, x.relu(), m.w).relu(), m.v),
            f=linear(),
            w=nn.Parameter(torch.rand(3, 3)),
            v=nn.Parameter(torch.rand(3, 3)),
        ),
        (4, 3),
    ),
    "batch norm with running statistics": (
        lambda: nn.Sequential(PostActivation(4, 4), PostActivation(4, 4)).eval(),
        (3, 4, 6, 6),
    ),
    "batch norm with the batch's statistics": (
        lambda: nn.Sequential(PostActivation(4, 4), PostActivation(4, 4)),
        (3, 4, 6, 6),
    ),
    "attention": (lambda: Formula(lambda m, x: x + m.a(x) + m.f(x), a=Attention(), f=mlp(4)), (2, 5, 4)),
    "one weight twice": (lambda: Formula(lambda m, x: (lambda y: y + m.f(y))(x + m.f(x)), f=linear()), (4, 3)),
}


@pytest.mark.parametrize("name", MODELS)
def test_stacks_add_up_to_the_gradient_of_autograd(name):
    build, shape = MODELS[name]
    model = drawn(build())
    inputs = noise(*shape)
    cotangent = noise(*model(inputs).shape, seed=1)
    found, expected = stacks(model, inputs, cotangent), autograd(model, inputs, cotangent)
    assert found
    for parameter, stack in found.items():
        scale = max(1.0, float(expected[parameter].abs().max()))
        error = float((stack.sum(0) - expected[parameter]).abs().max())
        assert error <= 1e-12 * scale, parameter


def test_a_common_factor_of_all_branches_weighs_each_length():
    """With biases at zero, branches times t have the gradients Σ_r t^(r-1) G_r by what stands inside them."""
    model, inputs, cotangent = drawn(Perceptrons(3)), noise(4, 3), noise(4, 2, seed=1)
    for layer in (*model.first, *model.second):
        nn.init.zeros_(layer.bias)
    t = 1 + 1e-6  # near one, so that no mask flips
    scaled = drawn(Perceptrons(3))
    scaled.load_state_dict(model.state_dict())
    for layer in scaled.second:
        layer.weight.data *= t
    expected = autograd(scaled, inputs, cotangent)
    for name, stack in stacks(model, inputs, cotangent).items():
        if name.startswith("first") and name.endswith("weight"):
            weighed = sum(t**r * entry for r, entry in enumerate(stack))
            assert_close(weighed, expected[name], relative=1e-10)
            assert not math.isclose(float((stack.sum(0) - expected[name]).norm()), 0, abs_tol=1e-9)


def test_what_no_operation_reads_itself_is_left_out():
    model = drawn(Formula(lambda m, x: x + x @ (m.w * 2), w=nn.Parameter(torch.rand(3, 3))))
    assert stacks(model, noise(2, 3), noise(2, 3, seed=1)) == {}
