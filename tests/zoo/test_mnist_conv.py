"""REF-M of the theory note: the four MNIST networks at given weights and images."""

import pytest
import torch
from torch.func import vjp, vmap

from skiplens import zoo
from tests.tolerances import assert_close

# Numbers t = 1..14 of the note's tensors, by their place in our networks.
NUMBERS = {
    "stem.0": 1,
    "block1.branch.2": 3,
    "block1.branch.5": 5,
    "block2.residual.shortcut.projection": 7,
    "block2.residual.branch.0": 9,
    "block2.residual.branch.3": 11,
    "head.3": 13,
}

# loss, largest, 40th, 70th and smallest singular value, Frobenius norm, mean logarithm
REFERENCE = {
    "mnist_chain": [
        2.72272436149317, 18.7704614480507, 11.307901760441, 7.53398550102234,
        3.76988136300329, 105.695300474006, 2.34921801506788,
    ],
    "mnist_residual": [
        2.53421484542139, 18.7390145874156, 11.0578649876238, 7.20839348662962,
        3.49731931387425, 104.8180186872, 2.33249844752525,
    ],
    "mnist_residual_avgpool": [
        2.58401094995344, 19.0453383519064, 10.9898094255275, 6.86849270008673,
        3.38847277262636, 104.209625401201, 2.33009087599901,
    ],
    "mnist_residual_isopool": [
        2.46836723626641, 18.8755185849907, 11.242442981943, 7.1448610068688,
        3.50927776684095, 104.550064992472, 2.33137899797109,
    ],
}  # fmt: skip


def reference_images() -> torch.Tensor:
    k = torch.arange(1, 6273, dtype=torch.float64)
    return (0.5 + 0.5 * torch.sin(k.square())).reshape(8, 1, 28, 28)


def reference_network(name: str) -> torch.nn.Module:
    network = zoo.build(name)
    for module, number in NUMBERS.items():
        if name == "mnist_chain" and "projection" in module:
            continue
        layer = network.get_submodule(module)
        fan_in = layer.weight[0].numel()
        for offset, parameter in enumerate((layer.weight, layer.bias)):
            k = torch.arange(1, parameter.numel() + 1, dtype=torch.float64) + 1000 * (number + offset)
            parameter.data.copy_((torch.sin(k.square()) / fan_in**0.5).reshape(parameter.shape))
    return network


@pytest.mark.parametrize("name", REFERENCE)
def test_reference_values(name):
    network = reference_network(name)
    z = network.stem(reference_images()).detach()

    def logits(features):
        return network.head(network.block2(network.block1(features)))

    outputs, backwards = vjp(logits, z)
    J = vmap(lambda row: backwards(row.reshape(8, 10))[0].flatten())(torch.eye(80))
    values = torch.linalg.svdvals(J)
    loss = torch.nn.functional.cross_entropy(outputs, torch.arange(8))
    measured = [loss, values[0], values[39], values[69], values[79], J.norm(), values.log().mean()]
    assert_close(torch.stack(measured).detach(), torch.tensor(REFERENCE[name]), relative=1e-9)  # the note's tolerance


def test_stem_of_the_reference():
    z = reference_network("mnist_chain").stem(reference_images()).detach()
    assert z.shape == (8, 5, 12, 12)
    assert_close(z.flatten()[:3], torch.tensor([-0.392225806429235, -0.0414073408554333, -0.100791890727038]))
    assert_close(z.norm(), torch.tensor(20.4628173412601))


def test_batch_statistics_are_used_in_both_modes_and_nothing_is_kept():
    network, images = zoo.build("mnist_residual"), reference_images()
    assert not list(network.buffers())
    assert torch.equal(network.train()(images), network.eval()(images))
