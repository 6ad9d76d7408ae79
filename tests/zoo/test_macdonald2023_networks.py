"""REF-A and REF-R of the theory note: outputs, losses, gradients and gradient descent."""

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from skiplens import zoo
from skiplens.base.errors import SettingsError
from tests.tolerances import assert_close
from tests.zoo.small_networks import sines

SMALL = {"widths": (6, 5, 4, 3), "hidden": 4}
X = sines(6, 4).T  # one sample a row
LABELS = torch.tensor([0, 1, 2, 0])
TARGETS = torch.cos(torch.arange(1.0, 13.0, dtype=torch.float64).square()).reshape(3, 4).T


def reference(name: str, scale: float = 1.5, **options) -> nn.Module:
    network = zoo.build(name, **SMALL, **options)
    theta = scale * torch.sin(torch.arange(1, 95, dtype=torch.float64).square() / 3)
    nn.utils.vector_to_parameters(theta, network.parameters())
    return network


def cross_entropy(network: nn.Module) -> Tensor:
    return F.cross_entropy(network(X), LABELS)


def square(network: nn.Module) -> Tensor:
    return (network(X) - TARGETS).square().sum() / 8


F_REF_A = [-0.092484883935844, -1.7535967713883, -0.22681943742205, 1.0063371769962,
           -2.2920527243751, 0.021073522560715, -1.3928900302111, -0.38289404805828,
           1.2397926495602, -0.97367794131244, 0.36140309742172, 0.25114981551132]  # fmt: skip


def test_outputs_of_ref_a():
    outputs = reference("normalised_resnet")(X).T.flatten()
    assert_close(outputs.detach(), torch.tensor(F_REF_A))  # the note prints 13 or 14 digits


@pytest.mark.parametrize(
    ("loss", "value", "gradient"),
    [(cross_entropy, 0.77742994474628, 0.14162684350673), (square, 3.0429857886292, 1.0084682026555)],
)
def test_losses_and_gradients_of_ref_a(loss, value, gradient):
    network = reference("normalised_resnet")
    measured = loss(network)
    gradients = torch.autograd.grad(measured, list(network.parameters()))
    assert_close(measured.detach(), torch.tensor(value))
    assert_close(torch.stack([g.square().sum() for g in gradients]).sum(), torch.tensor(gradient))


def losses_of_descent(network: nn.Module, loss, rate: float, steps: list[int]) -> Tensor:
    recorded = []
    for step in range(steps[-1] + 1):
        value = loss(network)
        if step in steps:
            recorded.append(value.detach())
        gradients = torch.autograd.grad(value, list(network.parameters()))
        for parameter, gradient in zip(network.parameters(), gradients, strict=True):
            parameter.data -= rate * gradient
    return torch.stack(recorded)


@pytest.mark.parametrize(
    ("scale", "expected"),
    [
        (0.1, [1.018685888617, 1.010995094653, 0.945559609098, 0.565020714488]),
        (1.5, [0.777429944746, 0.775447903602, 0.757559556337, 0.583747588662]),
        (15, [1.055446413796, 1.055430476818, 1.055286571505, 1.053798292441]),
    ],
)
def test_descent_of_ref_a(scale, expected):
    network = reference("normalised_resnet", scale)
    losses = losses_of_descent(network, cross_entropy, 1.9 / 135.78673583676, [0, 1, 10, 100])
    assert_close(losses, torch.tensor(expected), relative=1e-9)  # the note's tolerance


def test_outputs_of_ref_r():
    row = reference("guaranteed_resnet")(X).T[0].detach()
    expected = [-0.0852031717350, -3.5452332095012, -0.4073432698890, 1.8501372346392]
    assert_close(row, torch.tensor(expected), relative=1e-12)


@pytest.mark.parametrize(
    ("loss", "smoothness", "expected"),
    [
        (cross_entropy, 20.454384454843954, [0.6861817174911, 0.6755898432866, 0.5863344427561, 0.1837178428341]),
        (square, 50.0553310067958, [6.636807142879, 6.396365527805, 4.652636216625, 0.5593685137919]),
    ],
)
def test_descent_of_ref_r(loss, smoothness, expected):
    losses = losses_of_descent(reference("guaranteed_resnet"), loss, 1 / smoothness, [0, 1, 10, 100])
    assert_close(losses, torch.tensor(expected), relative=1e-9)


@pytest.mark.parametrize(("name", "margin"), [("normalised_resnet", 0.1), ("guaranteed_resnet", 0.5)])
@pytest.mark.parametrize("scale", [0.1, 1.5, 50.0])
def test_branches_are_contractions_for_every_weight(name, margin, scale):
    network = reference(name, scale)
    features = network.first(X)
    for block in network.blocks:
        J = torch.func.vmap(torch.func.jacrev(block.branch))(features)
        assert torch.linalg.matrix_norm(J, 2).max() <= 1 - margin
        features = block(features)


def test_the_network_on_digits_has_the_parameters_of_the_note():
    network = zoo.build("normalised_resnet")
    assert sum(p.numel() for p in network.parameters()) == 26_272
    assert network(sines(2, 784)).shape == (2, 10)


@pytest.mark.parametrize("widths", [(6, 3, 4), (6,), (784, 32, 16, 17)])
def test_widths_that_grow_are_refused(widths):
    with pytest.raises(SettingsError, match="layers that never grow; got"):
        zoo.build("normalised_resnet", widths=widths)


def test_a_margin_of_one_is_refused():
    with pytest.raises(SettingsError, match=r"margin must be below 1; got 1\.0"):
        zoo.build("guaranteed_resnet", margin=1.0)
