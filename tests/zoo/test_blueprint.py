"""Networks from choices: their depth, their start, and what theory says of their size."""

import math

import pytest
import torch
from torch import nn

from skiplens.base.errors import InvalidInputError
from skiplens.graph import find_residual_blocks
from skiplens.zoo.blueprint import Blueprint
from skiplens.zoo.layers import Residual

SAMPLES = {"mlp": (6,), "resnet": (3, 8, 8), "transformer": (5, 6)}


def inputs(family, count=4):
    return torch.randn(count, *SAMPLES[family], generator=torch.Generator().manual_seed(0))


@pytest.mark.parametrize("family", SAMPLES)
@pytest.mark.parametrize("shortcut", [0, 2])
@pytest.mark.parametrize("norm", ["none", "layer", "batch"])
def test_every_choice_gives_a_network_whose_layers_all_learn(family, shortcut, norm):
    if family == "transformer" and norm == "batch":
        return
    plan = Blueprint(family, SAMPLES[family], 3, 8, 8, shortcut=shortcut, norm=norm, branches="scaled")
    network = plan.build()
    out = network(inputs(family))
    assert out.shape == (4, 3)
    out.square().sum().backward()
    assert all(parameter.grad is not None for parameter in network.parameters())
    blocks = find_residual_blocks(network, inputs(family, 2))
    assert len([block for block in blocks if block.parent is None]) == plan.blocks


@pytest.mark.parametrize("depth", [4, 10, 31])
def test_the_depth_is_the_number_of_matrices_in_series(depth):
    network = Blueprint("mlp", (6,), 3, depth, 8, shortcut=1).build()
    blocks = find_residual_blocks(network, inputs("mlp", 2))
    assert sum(block.branch_depth for block in blocks) + 2 == depth


@pytest.mark.parametrize("family", ["mlp", "resnet"])
def test_branches_of_zero_start_as_the_shortcuts_alone(family):
    network = Blueprint(family, SAMPLES[family], 3, 14, 8).build()
    X = inputs(family)
    h = X
    for module in network:
        h = module.shortcut(h) if isinstance(module, Residual) else module(h)
    assert torch.equal(network(X), h)


def test_shortcuts_across_stages_keep_every_direction():
    network = Blueprint("resnet", (3, 8, 8), 3, 14, 4).build()
    pools = [module.shortcut for module in network if isinstance(module, Residual)]
    across = [pool for pool in pools if not isinstance(pool, nn.Identity)]
    assert len(across) == 2
    J = torch.func.jacrev(lambda x: across[0](x[None])[0].flatten())(torch.randn(4, 8, 8)).flatten(1)
    values = torch.linalg.svdvals(J)
    assert values == pytest.approx([1.0] * len(values), abs=1e-6)


@pytest.mark.parametrize("depth", [20, 200])
def test_scaled_branches_let_the_power_grow_by_less_than_e(depth):
    """(1 + 1/L)^L < e for one matrix a branch, in expectation over the weights."""
    network = Blueprint("mlp", (64,), 3, depth, 256, shortcut=1, branches="scaled").build()
    h = network[0](torch.randn(32, 64, generator=torch.Generator().manual_seed(0)))
    h = h.detach()
    before = h.square().mean()
    for module in network:
        h = module(h).detach() if isinstance(module, Residual) else h
    growth = float(h.square().mean() / before)
    assert 1.5 < growth < 1.3 * math.e


def test_the_seed_names_the_weights_and_nothing_else_is_drawn():
    plan = Blueprint("transformer", (5,), 3, 8, 8, vocabulary=11, norm="layer")
    before = torch.random.get_rng_state()
    one, same, other = (plan.build(seed).state_dict() for seed in (0, 0, 1))
    assert torch.equal(before, torch.random.get_rng_state())
    assert all(torch.equal(one[name], same[name]) for name in one)
    assert not torch.equal(one["0.places"], other["0.places"])
    assert plan.build()(torch.randint(11, (2, 5))).shape == (2, 3)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"family": "rnn"}, "no family 'rnn'"),
        ({"inputs": (3, 8)}, "samples of 1 axes"),
        ({"depth": 2}, "depth is 2"),
        ({"family": "transformer", "inputs": (5, 6), "width": 6}, "4 divides"),
    ],
)
def test_what_cannot_be_built_is_one_sentence(changes, words):
    with pytest.raises(InvalidInputError, match=words):
        Blueprint(**{"family": "mlp", "inputs": (6,), "outputs": 3, "depth": 8, "width": 8, **changes})
