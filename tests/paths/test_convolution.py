"""Convolutions of a stack against torch's own of each coefficient, c₀ = x and c₁ = f(x)."""

import pytest
import torch
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode

from skiplens.graph.dissect import dissect
from skiplens.paths import rule_table
from skiplens.paths.backward import weight_paths
from tests.networks import Formula, drawn, noise
from tests.paths.frozen_by_hand import coefficients
from tests.tolerances import assert_close

LAYERS = {
    "padded": (nn.Conv2d(4, 6, 3, padding=1), (7, 5)),
    "strided": (nn.Conv2d(4, 6, 3, stride=2, padding=1, bias=False), (8, 7)),
    "of unequal sides": (nn.Conv2d(4, 6, (3, 2), stride=(1, 2), padding=(2, 0)), (7, 5)),
    "dilated": (nn.Conv2d(4, 6, 3, padding=2, dilation=2), (7, 5)),
    "in groups": (nn.Conv2d(4, 6, 3, groups=2), (7, 5)),
    "of each channel": (nn.Conv2d(4, 8, 3, padding=1, groups=4), (7, 5)),
    "of points": (nn.Conv2d(4, 6, 1, stride=2), (7, 5)),
    "same": (nn.Conv2d(4, 6, 3, padding="same"), (7, 5)),
    "around": (nn.Conv2d(4, 6, 3, padding=1, padding_mode="circular"), (7, 5)),
    "transposed": (nn.ConvTranspose2d(4, 6, 3, stride=2), (7, 5)),
    "in one dimension": (nn.Conv1d(4, 6, 3, stride=2, padding=1), (9,)),
    "in three dimensions": (nn.Conv3d(4, 6, (1, 3, 2), padding=(0, 1, 1), dilation=(1, 2, 1)), (3, 6, 4)),
}
POINTS = {1: nn.Conv1d, 2: nn.Conv2d, 3: nn.Conv3d}


class Shapes(TorchDispatchMode):
    """The shapes of the inputs of all convolutions that torch carries out."""

    def __init__(self):
        super().__init__()
        self.seen = []

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        if "convolution" in str(function):
            self.seen.append(tuple(args[0].shape))
        return function(*args, **(kwargs or {}))


def behind_a_join(layer, sizes):
    """The layer of x + f(x), with f of each point by itself, and x for three samples."""
    first = POINTS[len(sizes)](4, 4, 1, bias=False)
    model = drawn(Formula(lambda m, x: m.layer(x + m.first(x)), layer=layer, first=first).double())
    return model, noise(3, 4, *sizes, seed=3)


def expected(model, inputs):
    with torch.no_grad():
        constant = model.layer(torch.zeros_like(inputs))
        return torch.stack([model.layer(inputs), model.layer(model.first(inputs)) - constant])


@pytest.mark.parametrize("at_once", [1, 4, 6], ids="{} images at once".format)
@pytest.mark.parametrize(("layer", "sizes"), LAYERS.values(), ids=LAYERS)
def test_each_coefficient_is_convolved(layer, sizes, at_once, monkeypatch):
    model, inputs = behind_a_join(layer, sizes)
    monkeypatch.setattr(rule_table, "_images_at_once", lambda _: at_once)
    monkeypatch.setattr(torch, "get_num_threads", lambda: 1)
    assert_close(coefficients(model, inputs), expected(model, inputs))


def test_images_without_a_batch():
    model, inputs = behind_a_join(nn.Conv2d(4, 6, 3, padding=1), (7, 5))
    assert_close(coefficients(model, inputs[0]), expected(model, inputs)[:, 0])


@pytest.fixture
def torch_convolves(monkeypatch):
    """Whether torch is asked for a convolution of a whole stack, where two images at once are unfolded."""

    def asked(layer=None, dtype=torch.float64, threads=1, at_once=2):
        model, inputs = behind_a_join(layer or nn.Conv2d(4, 6, 3, padding=1), (7, 5))
        monkeypatch.setattr(torch, "get_num_threads", lambda: threads)
        monkeypatch.setattr(rule_table, "_PATCH_BYTES", at_once * (7 * 5) * (4 * 9) * 8)
        with Shapes() as shapes:
            coefficients(model.to(dtype), inputs.to(dtype))
        return any(shape[0] > len(inputs) for shape in shapes.seen)

    return asked


def test_torch_unfolds_no_stack_in_double_precision(torch_convolves):
    """Its patches would take nine times the memory of the stack, and half as much time again."""
    assert not torch_convolves()


def test_torch_convolves_what_it_is_good_at(torch_convolves):
    assert torch_convolves(dtype=torch.float32)
    assert torch_convolves(threads=2)
    assert torch_convolves(at_once=6)
    assert torch_convolves(nn.Conv2d(4, 6, 1))
    assert torch_convolves(nn.Conv2d(4, 4, 3, groups=2))


def test_the_gradient_of_a_kernel_is_that_of_autograd(monkeypatch):
    monkeypatch.setattr(rule_table, "_images_at_once", lambda _: 1)
    monkeypatch.setattr(torch, "get_num_threads", lambda: 1)
    model, inputs = behind_a_join(nn.Conv2d(4, 6, 3, padding=1), (7, 5))
    output = model(inputs)
    cotangent = noise(*output.shape, seed=5)
    found = dict(weight_paths(dissect(model, inputs), ["layer.weight"], cotangent))
    (expected,) = torch.autograd.grad(output, [model.layer.weight], cotangent)
    assert_close(found["layer.weight"].sum(0), expected)
