import torch
from torch import nn

from skiplens.zoo.layers import convolution, linear, uninitialised


def test_making_a_layer_draws_nothing():
    state = torch.get_rng_state()
    layers = [linear(3, 4, bias=True), convolution(2, 3, 5), uninitialised(nn.Conv1d, 2, 3, 3)]
    assert torch.equal(torch.get_rng_state(), state)
    assert all(p.device.type == "cpu" and p.dtype == torch.float64 for layer in layers for p in layer.parameters())


def test_the_default_device_is_respected():
    with torch.device("meta"):
        assert linear(3, 4).weight.device.type == "meta"


def test_a_convolution_keeps_the_size_unless_told_otherwise():
    images = torch.zeros(1, 2, 9, 9)
    assert convolution(2, 3, 5)(images).shape == (1, 3, 9, 9)
    assert convolution(2, 3, 3, stride=2)(images).shape == (1, 3, 5, 5)
    assert convolution(2, 3, 3, padding=0)(images).shape == (1, 3, 7, 7)
    assert convolution(2, 3, 3).bias is None and linear(2, 3).bias is None
