"""Convolutions of a stack against torch's own of each coefficient, c₀ = x and c₁ = f(x)."""

import pytest
import torch
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode

from skiplens.derivatives.polynomial.rules import convolution
from tests.derivatives.polynomial.frozen_by_hand import coefficients
from tests.networks import Formula, drawn, noise
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


@pytest.mark.parametrize("patches", [1, 4, 100], ids="{} images at once".format)
@pytest.mark.parametrize(("layer", "sizes"), LAYERS.values(), ids=LAYERS)
def test_each_coefficient_is_convolved(layer, sizes, patches, monkeypatch):
    model, inputs = behind_a_join(layer, sizes)
    monkeypatch.setattr(convolution, "_images_at_once", lambda *_: patches)
    assert_close(coefficients(model, inputs), expected(model, inputs))


def test_images_without_a_batch():
    model, inputs = behind_a_join(nn.Conv2d(4, 6, 3, padding=1), (7, 5))
    assert_close(coefficients(model, inputs[0]), expected(model, inputs)[:, 0])


def test_what_is_unfolded_at_once_takes_some_megabytes_whatever_the_stack():
    many = [convolution._images_at_once(noise(n, 64, 8, 8), noise(64, 64, 3, 3), noise(n, 64, 8, 8)) for n in (9, 90)]
    assert many[0] == many[1] == torch.get_num_threads() * 2**21 // (8 * 8 * 64 * 9 * 8)
    large = noise(1, 1, 1, 1).expand(2, 64, 256, 256)
    assert convolution._images_at_once(large, noise(64, 64, 3, 3), large) >= 1


def stacks_that_torch_convolves(dtype):
    """How many convolutions of more than the three samples torch is asked for."""
    model, inputs = behind_a_join(nn.Conv2d(4, 6, 3, padding=1), (7, 5))
    with Shapes() as shapes:
        coefficients(model.to(dtype), inputs.to(dtype))
    return sum(shape[0] > len(inputs) for shape in shapes.seen)


def test_torch_unfolds_no_stack_in_double_precision():
    """Its patches would take nine times the memory of the stack, and more time than the products."""
    assert stacks_that_torch_convolves(torch.float64) == 0


def test_torch_convolves_stacks_in_single_precision():
    assert stacks_that_torch_convolves(torch.float32) == 1
