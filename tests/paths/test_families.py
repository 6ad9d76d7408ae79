"""Sums of coefficients against the plain output, derivative and gradient of models that others wrote."""

import pytest
import torch
from torch import nn

from skiplens.graph.dissect import dissect
from skiplens.graph.functional import transformable
from skiplens.graph.network import ResidualNetwork
from skiplens.paths.backward import pull_back
from skiplens.paths.forward import PathOrders, expand_signal, expand_tangent
from skiplens.paths.plan import frozen_plan, tangent_plan
from tests import hugging_face
from tests.networks import drawn, noise
from tests.tolerances import assert_close
from tests.zoo.test_every_network import NAMES, inputs_for, small

FAMILIES = ["resnet_basic", "regnet", "convnext", "vit", "gpt2", "llama", "bert"]
OTHERS = ["resnet_bottleneck", "albert", "gptj", "t5", "deberta"]
SINGLE = {"llama", "gptj", "t5"}
"""These compute their norms or their attention in single precision, whatever the precision of their weights."""


def taken_apart(name: str) -> ResidualNetwork:
    model, inputs = hugging_face.built(getattr(hugging_face, name))
    return dissect(drawn(model), inputs)  # their own tiny weights make nearly constant activations


def tolerance(name: str) -> float:
    return 1e-5 if name in SINGLE else 1e-12


def check_signal(network: ResidualNetwork, relative: float) -> None:
    output = network.node(network.output)
    stack = expand_signal(frozen_plan(network, output), PathOrders())
    assert_close(stack.sum(0), network.run([network.output])[network.output].detach(), relative)


def sources(network: ResidualNetwork, plan) -> dict[str, torch.Tensor]:
    values = network.run([node.name for node in plan.sources])
    return {name: value.detach().requires_grad_() for name, value in values.items()}


def check_derivatives(network: ResidualNetwork, relative: float) -> None:
    """jvp and vjp from autograd over the whole graph; the jvp as the derivative of the vjp by its cotangent."""
    output = network.node(network.output)
    plan = tangent_plan(network, output)
    at = sources(network, plan)
    tangents = {name: noise(*value.shape, seed=1).to(value.dtype) for name, value in at.items()}
    with transformable(), torch.enable_grad():
        value = network.run([network.output], given=at)[network.output]
        cotangent = noise(*value.shape, seed=2).to(value.dtype).requires_grad_()
        gradients = torch.autograd.grad(value, list(at.values()), cotangent, create_graph=True)
        inner = sum((g * tangents[name]).sum() for name, g in zip(at, gradients, strict=True))
        (pushed,) = torch.autograd.grad(inner, cotangent)
    assert_close(expand_tangent(plan, PathOrders(), tangents).sum(0), pushed, relative)
    pulled = {name: stack.sum(0) for name, stack in pull_back(plan, PathOrders(), cotangent.detach())}
    for name, gradient in zip(at, gradients, strict=True):
        assert_close(pulled[name], gradient.detach(), relative)


@pytest.mark.parametrize("name", [*FAMILIES, *(pytest.param(name, marks=pytest.mark.slow) for name in OTHERS)])
def test_hugging_face(name):
    network = taken_apart(name)
    check_signal(network, tolerance(name))
    check_derivatives(network, tolerance(name))


class DoubleNorm(nn.Module):
    """Llama's norm without its detour through single precision."""

    def __init__(self, weight: nn.Parameter) -> None:
        super().__init__()
        self.weight = weight

    def forward(self, x):
        return self.weight * (x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6))


def test_llama_is_exact_once_its_norms_are_computed_in_double_precision():
    model, inputs = hugging_face.built(hugging_face.llama)
    for name, module in list(model.named_modules()):
        if type(module).__name__ == "LlamaRMSNorm":
            model.set_submodule(name, DoubleNorm(module.weight))
    network = dissect(drawn(model), inputs)
    check_signal(network, 1e-12)
    check_derivatives(network, 1e-12)


QUICK = [("digits_resnet", True), ("ensemble_resnet", False), ("normalised_resnet", False), ("tangent_resnet", False)]
ALL = [(name, training) for name in NAMES for training in (False, True)]


@pytest.mark.parametrize(
    ("name", "training"), [case if case in QUICK else pytest.param(*case, marks=pytest.mark.slow) for case in ALL]
)
def test_zoo(name, training):
    network = dissect(small(name).train(training), inputs_for(name))
    check_signal(network, 1e-12)
    check_derivatives(network, 1e-12)
