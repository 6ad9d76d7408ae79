"""The reference tables of the theory note: data S(d, m), weights V(d, K, s), losses, gradients, gradient descent."""

import pytest
import torch
from torch import Tensor, nn

from skiplens import zoo
from skiplens.zoo.li2016 import matrices
from tests.tolerances import assert_close
from tests.zoo.small_networks import set_weights


def data(d: int, m: int) -> tuple[Tensor, Tensor]:
    """The note's S(d, m), one sample a row."""
    mu, i = torch.arange(1, m + 1)[:, None], torch.arange(1, d + 1)[None, :]
    inputs = ((31 * i**2 + 17 * mu**2 + 7 * i * mu + 5 * i**2 * mu + 3) % 101 - 50) / 50
    return inputs.to(torch.float64), nn.functional.one_hot((torch.arange(m)) % d, d).to(torch.float64)


def weights(d: int, count: int, scale: float) -> list[Tensor]:
    """The note's V(d, K, s)."""
    i, j = torch.arange(1, d + 1)[:, None], torch.arange(1, d + 1)[None, :]
    return [
        scale * ((23 * i**2 + 41 * j**2 + 11 * i * j + 13 * k * i + 29 * k * j + 19 * k**2 + 7) % 103 - 51) / 51
        for k in range(1, count + 1)
    ]


def square_loss(network: nn.Module, inputs: Tensor, targets: Tensor) -> Tensor:
    return (network(inputs) - targets).square().sum() / (2 * len(inputs))


def network_of(name: str, scale: float, **options) -> nn.Module:
    network = zoo.build(name, **options)
    set_weights(network, weights(options["width"], len(list(network.parameters())), scale))
    return network


TANH = {"pre": "tanh", "mid": "tanh", "post": "tanh"}
ONE = {"branch_depth": 1}
LOSSES = {
    "S3 n=1": (3, 8, "shortcut_linear", {"units": 6, "branch_depth": 1}, 1.148379531450968, 2.338045500800153),
    "S3 n=2": (3, 8, "shortcut_linear", {"units": 3, "branch_depth": 2}, 1.218608515701894, 1.066797751565691),
    "S3 n=3": (3, 8, "shortcut_linear", {"units": 2, "branch_depth": 3}, 0.888118837880767, 0.151448489511006),
    "S3 plain": (3, 8, "plain_network", {"depth": 6}, 0.500868448559272, 0.006609741739019),
    "S3 relu": (3, 8, "shortcut_network", {"units": 3}, 1.001243314348796, 0.478966412284194),
    "S3 tanh n=1": (3, 8, "shortcut_network", {"units": 6, **ONE, **TANH}, 1.135688637387164, 1.699216904823858),
    "S3 tanh n=2": (3, 8, "shortcut_network", {"units": 3, **TANH}, 1.142370002399967, 0.735748155174687),
    "S10 n=1": (10, 40, "shortcut_linear", {"units": 12, "branch_depth": 1}, 180.7841827928260, 890.122017636545),
    "S10 n=2": (10, 40, "shortcut_linear", {"units": 6, "branch_depth": 2}, 7.347758808083716, 21.03979074458297),
    "S10 n=3": (10, 40, "shortcut_linear", {"units": 4, "branch_depth": 3}, 3.168265195205735, 4.586160882305099),
    "S10 plain": (10, 40, "plain_network", {"depth": 12}, 0.503152329286320, 0.032069928392146),
    "S10 relu": (10, 40, "shortcut_network", {"units": 6}, 4.953109048550580, 8.785930167939812),
    "S10 tanh n=1": (10, 40, "shortcut_network", {"units": 12, **ONE, **TANH}, 10.21280993645521, 15.63763320400848),
    "S10 tanh n=2": (10, 40, "shortcut_network", {"units": 6, **TANH}, 3.516370345718512, 4.010204920364007),
}  # fmt: skip


@pytest.mark.parametrize(("d", "m", "name", "options", "loss", "gradient"), LOSSES.values(), ids=LOSSES)
def test_loss_and_gradient_of_the_reference_table(d, m, name, options, loss, gradient):
    network = network_of(name, 0.4, width=d, **options)
    value = square_loss(network, *data(d, m))
    norm = torch.stack([g.square().sum() for g in torch.autograd.grad(value, list(network.parameters()))]).sum().sqrt()
    assert_close(value.detach(), torch.tensor(loss))
    # The table prints 13 to 16 digits of the gradient's norm; the smallest one has 13 after the point.
    assert_close(norm, torch.tensor(gradient), relative=1e-10)


# losses at steps 0, 10, 100 and 1000
DESCENTS = {
    "n=1": (6, 1, 0.05, [0.9107985958251, 0.5286472562117, 0.3322111838067, 0.3043831188703]),
    "n=2": (3, 2, 0.1, [0.9085137883467, 0.9083740619365, 0.8190657325590, 0.3028699152214]),
    "n=3": (2, 3, 0.1, [0.9084246075061, 0.9084245966857, 0.9084244965768, 0.9084228052851]),
}


@pytest.mark.parametrize(("units", "branch_depth", "rate", "expected"), DESCENTS.values(), ids=DESCENTS)
def test_gradient_descent_of_the_reference_table(units, branch_depth, rate, expected):
    network = network_of("shortcut_linear", 0.01, width=3, units=units, branch_depth=branch_depth)
    inputs, targets = data(3, 8)
    losses = []
    for step in range(1001):
        loss = square_loss(network, inputs, targets)
        if step in (0, 10, 100, 1000):
            losses.append(loss.detach())
        gradients = torch.autograd.grad(loss, list(network.parameters()))
        for parameter, gradient in zip(network.parameters(), gradients, strict=True):
            parameter.data -= rate * gradient
    assert_close(torch.stack(losses), torch.tensor(expected), relative=1e-8)  # the note's tolerance for trajectories


def test_shortcut_network_with_three_activations_by_hand():
    options = {"pre": "tanh", "mid": "relu", "post": "tanh", "branch_depth": 3, "units": 2, "width": 4}
    network = zoo.build("shortcut_network", initialisation="xavier", **options)
    h, _ = data(4, 5)
    W = iter(matrices(network))
    expected = h
    for _ in range(2):
        z = torch.relu(next(W) @ torch.tanh(expected).T)
        z = torch.relu(next(W) @ z)
        expected = expected + torch.tanh(next(W) @ z).T
    assert_close(network(h).detach(), expected.detach())


def test_biased_network_of_theorem_1_by_hand():
    network = zoo.build("shortcut_network", initialisation="xavier", bias=True, units=2, width=4)
    h, _ = data(4, 5)
    expected = h
    for unit in network:
        (W1, b, W2) = unit.branch.parameters()
        b.data.copy_(torch.linspace(-1, 1, 4))
        expected = expected + torch.relu(expected @ W1.T + b) @ W2.T
    assert_close(network(h).detach(), expected.detach())


@pytest.mark.parametrize("depth", [1, 2, 5])
def test_plain_relu_network_has_relu_after_odd_matrices(depth):
    network = zoo.build("plain_network", activation="relu", depth=depth, width=4)
    h, _ = data(4, 5)
    expected = h
    for k, W in enumerate(matrices(network), start=1):
        expected = expected @ W.T
        expected = torch.relu(expected) if k % 2 == 1 else expected
    assert_close(network(h).detach(), expected.detach())


def test_near_zero_start_has_the_norm_of_the_note():
    # Epoch-0 value of figure 3: mean Frobenius norm 0.0316 ± 0.001.
    norms = torch.stack([W.norm() for W in matrices(zoo.build("shortcut_linear", units=32))])
    assert abs(norms.mean().item() - 0.0316) < 0.001


def test_orthogonal_start_keeps_norms():
    network, (inputs, _) = zoo.build("plain_network", initialisation="orthogonal"), data(10, 40)
    assert_close(network(inputs).norm(dim=1).detach(), inputs.norm(dim=1))
