import pytest
import torch
import torch.nn.functional as F
from torch import nn

from skiplens.graph.dissect import dissect
from tests.networks import DenseLayers, Formula, UNet, linear, mlp, noise


def image():
    return noise(2, 2, 8, 8)


def inception(m, x):
    return torch.cat([m.f(x), m.g(x)], 1)


def class_token(m, x):
    return m.f(torch.cat([m.token.expand(x.shape[0], 1, -1), x], 1))


def split(m, x):
    left, right = x.chunk(2, 1)
    return torch.cat([left, m.f(right)], 1)


def test_names_a_dense_network_as_dense_and_not_as_residual():
    network = dissect(DenseLayers(depth=3), image())
    assert (network.kind, network.blocks) == ("dense", [])
    # the second and the third layer and the output read concatenations; the first layer reads the input alone
    assert [len(join.pieces) for join in network.dense] == [2, 3, 4]
    assert [join.name for join in network.dense] == ["layers.0", "layers.1", "layers.2"]
    assert [(join.axis, join.output_shape) for join in network.dense] == [(1, (2, c, 8, 8)) for c in (4, 6, 8)]
    assert {join.input for join in network.dense} == {network.exported.inputs[0]}


def test_finds_the_long_skip_of_a_u_shaped_network():
    network = dissect(UNet(), image())
    (join,) = network.dense
    assert (network.kind, join.name, len(join.pieces)) == ("dense", "up", 2)


def test_a_network_may_add_and_concatenate():
    model = Formula(lambda m, x: torch.cat([x, m.g(x + m.f(x))], 1), f=mlp(), g=linear())
    network = dissect(model, noise(2, 3))
    assert (network.kind, len(network.blocks), len(network.dense)) == ("mixed", 1, 1)


def test_a_kept_part_of_the_channels_is_a_dense_join():
    network = dissect(Formula(split, f=linear(2, 2)), noise(2, 4))
    assert (network.kind, len(network.dense)) == ("dense", 1)


@pytest.mark.parametrize(
    "build",
    [
        lambda: Formula(inception, f=linear(), g=linear()),
        lambda: Formula(class_token, f=linear(), token=nn.Parameter(torch.zeros(1, 1, 3))),
        lambda: Formula(lambda m, x: m.f(torch.cat([x, x.flip(-1)], -1)), f=linear(6, 3)),
        lambda: Formula(lambda m, x: torch.cat([F.relu(m.f(x)), x.new_zeros(x.shape)], -1), f=linear()),
    ],
    ids=["inception", "class token", "no parameters", "padded with zeros"],
)
def test_takes_no_other_concatenation_for_a_dense_join(build):
    network = dissect(build(), noise(2, 5, 3))
    assert (network.kind, network.dense) == ("chain", [])
