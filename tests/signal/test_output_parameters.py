"""The promise itself is the oracle: multiply the parameters by c, and what the branch adds is c times as large."""

import copy

import pytest
import torch
from torch import nn

from skiplens.graph.dissect import dissect
from skiplens.graph.network import part_function
from tests import hugging_face
from tests.networks import Formula, PostActivation, PreActivation, SqueezeExcitation, drawn, linear, mlp, noise
from tests.signal.looking import look
from tests.tolerances import assert_close


def gated(m, x):
    return x + m.f(x) * torch.sigmoid(m.g(x))


IMAGES = noise(3, 4, 6, 6)
NETWORKS = {
    "two layers": lambda: (Formula(lambda m, x: x + m.f(x), f=mlp()), noise(4, 3)),
    "ReLU last": lambda: (Formula(lambda m, x: x + torch.relu(m.f(x)), f=linear()), noise(4, 3)),
    "two branches": lambda: (Formula(lambda m, x: x + m.f(x) + m.g(x), f=mlp(), g=mlp()), noise(4, 3)),
    "a constant factor": lambda: (Formula(lambda m, x: x + 0.1 * m.f(x), f=mlp()), noise(4, 3)),
    "batch norm last": lambda: (PostActivation(4, 4), IMAGES),
    "convolution last": lambda: (PreActivation(4, 4), IMAGES),
    "a gate": lambda: (Formula(gated, f=linear(), g=linear()), noise(4, 3)),
}


@pytest.mark.parametrize("name", NETWORKS)
def test_the_branch_is_proportional_to_them(name):
    model, inputs = NETWORKS[name]()
    assert_proportional(drawn(model).eval(), inputs)


@pytest.mark.parametrize(
    "build", [hugging_face.resnet_basic, hugging_face.regnet, hugging_face.vit, hugging_face.gpt2, hugging_face.llama]
)
@pytest.mark.slow
def test_on_hugging_face_models(build):
    assert_proportional(*hugging_face.built(build))


def assert_proportional(model: nn.Module, inputs) -> None:
    names = look(model, inputs).output_parameters
    network, scaled = dissect(model, inputs), copy.deepcopy(model)
    with torch.no_grad():
        for name in {name for block in names for name in block}:
            scaled.get_parameter(name).mul_(3)
    changed = dissect(scaled, inputs)
    for block, found in zip(network.blocks, names, strict=True):
        assert found
        value = network.run([block.input])[block.input]
        before = part_function(network, block, "branch")(value)
        assert_close(part_function(changed, changed.block(block.name), "branch")(value), 3 * before, 1e-6)


def test_a_gate_that_feels_the_scale_leaves_none():
    assert look(drawn(SqueezeExcitation()), IMAGES).output_parameters == ((),)


@pytest.mark.parametrize("last", [nn.Tanh(), nn.Softmax(-1)])
def test_a_bounded_branch_has_none(last):
    assert look(
        drawn(Formula(lambda m, x: x + m.last(m.f(x)), f=linear(), last=last)), noise(4, 3)
    ).output_parameters == ((),)
