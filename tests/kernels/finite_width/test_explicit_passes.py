"""Batches with explicit weights against autograd on each network for itself."""

import pytest
import torch

from skiplens.base.errors import InvalidInputError
from skiplens.kernels.finite_width.networks import DenseNet, ResNet, Vanilla, weight_law
from skiplens.kernels.finite_width.simulation import draw_networks, links, reduced_outputs, split_by_source
from tests.kernels.finite_width import autograd_oracle as oracle
from tests.tolerances import assert_close

NETWORKS = [
    ResNet(3, 6, 1, 0.5),
    ResNet(3, 6, 2, 0.5),
    ResNet(2, 5, 3, 0.8),
    DenseNet(4, 5),
    DenseNet(1, 4),
    Vanilla(3, 6),
]


@pytest.fixture
def inputs(generator):
    return torch.randn(4, 3, generator=generator)


def draw(network, generator, dtype=torch.float64):
    return draw_networks(network, 3, 2, weight_law("gaussian"), dtype, generator)


@pytest.mark.parametrize("network", NETWORKS, ids=str)
def test_outputs(network, generator, inputs):
    drawn = draw(network, generator)
    expected = [[oracle.output(network, oracle.weights_of(drawn, i), x).item() for x in inputs] for i in range(2)]
    last = next(links(drawn, inputs))
    assert_close(last.image[:, 0], torch.tensor(expected))


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@pytest.mark.parametrize(("with_first", "with_last"), [(False, False), (True, False), (False, True), (True, True)])
@pytest.mark.parametrize("network", NETWORKS, ids=str)
def test_kernels(network, with_first, with_last, dtype, generator, inputs):
    drawn, x = draw(network, generator, dtype), inputs.to(dtype)
    wanted = range(0 if with_first else 1, network.depth + (2 if with_last else 1))
    found = sum(link.kernel() for link in links(drawn, x) if link.layer in wanted)
    expected = [oracle.kernel(network, oracle.weights_of(drawn, i), x, with_first, with_last) for i in range(2)]
    assert found.dtype == dtype
    assert_close(found, torch.stack(expected).detach())


@pytest.mark.parametrize("network", NETWORKS, ids=str)
def test_single_matrices(network, generator, inputs):
    """Squared norms, fourth powers and path parts of every matrix's Jacobian, and first and last layer as well."""
    drawn = draw(network, generator)
    found = sorted(links(drawn, inputs), key=lambda link: (link.layer, link.matrix))
    for i in range(2):
        weights = oracle.weights_of(drawn, i)
        matrices = [weights[0], *weights[1], weights[2]]
        for j, x in enumerate(inputs):
            for link, matrix, gradient in zip(found, matrices, oracle.gradients(network, weights, x), strict=True):
                assert_close(link.jacobian_squared()[i, j], gradient.square().sum())
                assert_close(link.jacobian_fourth_powers()[i, j], gradient.pow(4).sum())
                assert_close(link.path_part()[i, j], (gradient * matrix).sum().detach(), relative=1e-10)


def test_single_matrices_of_a_dense_layer(generator, inputs):
    network = DenseNet(3, 5)
    drawn = draw(network, generator)
    layer = next(link for link in links(drawn, inputs) if link.layer == 3)
    weights = oracle.weights_of(drawn, 1)
    blocks = oracle.gradients(network, weights, inputs[2])[3].split(5, dim=1)
    for h, link in enumerate(split_by_source(drawn, layer)):
        assert (link.layer, link.matrix) == (3, h + 1)
        assert_close(link.jacobian_squared()[1, 2], blocks[h].square().sum())
        path = (blocks[h] * weights[1][2].split(5, dim=1)[h]).sum().detach()
        assert_close(link.path_part()[1, 2], path, relative=1e-10)


@pytest.mark.parametrize("network", NETWORKS, ids=str)
def test_reduced_networks(network, generator, inputs):
    drawn = draw(network, generator)
    for layer in range(1, network.depth + 1):
        sources = [None, *range(layer)] if isinstance(network, DenseNet) else [None]
        for source in sources:
            found = reduced_outputs(drawn, inputs, layer, source)
            weights = [oracle.weights_of(drawn, i) for i in range(2)]
            expected = [[oracle.output(network, w, x, layer, source).item() for x in inputs] for w in weights]
            assert_close(found, torch.tensor(expected))


def test_a_layer_that_does_not_exist(generator, inputs):
    with pytest.raises(InvalidInputError, match=r"layer must be between 1 and the depth 3, got 0"):
        reduced_outputs(draw(Vanilla(3, 6), generator), inputs, 0)
