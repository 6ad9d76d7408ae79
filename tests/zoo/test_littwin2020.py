import math

import pytest
import torch
from torch import Tensor

from skiplens import zoo
from skiplens.base.errors import SettingsError
from tests.tolerances import STANDARD_ERRORS, assert_close
from tests.zoo.small_networks import sines

X = sines(5, 4)


def q(y: Tensor) -> Tensor:
    return math.sqrt(2) * y.clamp(min=0)


@pytest.mark.parametrize("branch_depth", [1, 2, 3])
@pytest.mark.parametrize("shrink", [0, 2])
def test_resnet_by_hand(branch_depth, shrink):
    options = {"depth": 3, "branch_depth": branch_depth, "branch_scale": 0.6, "width": 9, "input_features": 4}
    network = zoo.build("tangent_resnet", shrink=shrink, **options)
    first, *matrices, last = (p.detach() for p in network.parameters())
    assert len(matrices) == 3 * branch_depth
    y = X @ first.T / math.sqrt(4)
    for block in range(3):
        u = y
        for h in range(branch_depth):
            W = matrices[block * branch_depth + h]
            v = math.sqrt(0.6 / u.shape[1]) * u @ W.T
            u = q(v)
        y = y[:, : 9 - shrink * (block + 1)] + v
    assert_close(network(X).detach(), y @ last.T / math.sqrt(y.shape[1]))


@pytest.mark.parametrize("shrink", [0, 2])
def test_densenet_by_hand(shrink):
    network = zoo.build("tangent_densenet", depth=4, width=9, input_features=4, shrink=shrink)
    first, *layers, last = (p.detach() for p in network.parameters())
    ys = [X @ first.T / math.sqrt(4)]
    for index, W in enumerate(layers, start=1):
        read = min(y.shape[1] for y in ys)
        blocks = W.split(read, dim=1)
        assert len(blocks) == index
        total = sum(q(y)[:, :read] @ block.T for y, block in zip(ys, blocks, strict=True))
        ys.append(total / math.sqrt(read * index))
    assert_close(network(X).detach(), ys[-1] @ last.T / math.sqrt(ys[-1].shape[1]))


def test_vanilla_by_hand():
    network = zoo.build("tangent_vanilla", depth=3, width=9, input_features=4)
    first, *layers, last = (p.detach() for p in network.parameters())
    y = X @ first.T / math.sqrt(4)
    for W in layers:
        y = q(y @ W.T / 3)
    assert_close(network(X).detach(), y @ last.T / 3)


@pytest.mark.parametrize("name", ["tangent_resnet", "tangent_densenet", "tangent_vanilla"])
class TestEveryTangentNetwork:
    def test_is_positively_homogeneous(self, name):
        network = zoo.build(name, input_features=4, width=16)
        assert_close(network(2.5 * X), 2.5 * network(X))

    def test_weights_are_standard_normal(self, name):
        network = zoo.build(name, width=64)
        weights = torch.cat([p.flatten() for p in network.parameters()])
        assert abs(weights.mean().item()) < STANDARD_ERRORS / math.sqrt(len(weights))
        assert abs(weights.square().mean().item() - 1) < STANDARD_ERRORS * math.sqrt(2 / len(weights))

    def test_names_tell_the_trained_matrices_apart(self, name):
        parts = [key.split(".")[0] for key, _ in zoo.build(name).named_parameters()]
        assert parts[0] == "first" and parts[-1] == "last" and set(parts[1:-1]) == {"blocks"}


# E G(x, x) of the trained matrices and its variance, theory note section 5, at tau = 1.
KERNELS = {
    "resnet": ("tangent_resnet", {"depth": 3, "branch_scale": 0.5, "width": 8}, 2.34375, 906344775 / 134217728),
    "densenet": ("tangent_densenet", {"depth": 4, "width": 8}, 2.08333333333333, 260485 / 36864),
    "vanilla": ("tangent_vanilla", {"depth": 3, "width": 8}, 3.0, 56513 / 2048),
}


@pytest.mark.parametrize(("name", "options", "mean", "variance"), KERNELS.values(), ids=KERNELS)
def test_mean_of_the_tangent_kernels_diagonal_is_exact_at_any_width(name, options, mean, variance, seed):
    x = math.sqrt(2) * torch.tensor([[1.0, 0.0]])
    samples = []
    for index in range(400):
        network = zoo.build(name, 1000 * seed + index, input_features=2, **options)
        gradients = torch.autograd.grad(network(x).sum(), list(network.blocks.parameters()))
        samples.append(sum(g.square().sum() for g in gradients))
    assert abs(torch.stack(samples).mean().item() - mean) < STANDARD_ERRORS * math.sqrt(variance / 400)


def test_widths_that_shrink_to_nothing_are_refused():
    with pytest.raises(SettingsError, match="ends at -2 units; give a larger width or a smaller shrink"):
        zoo.build("tangent_resnet", width=8, depth=5, shrink=2)
