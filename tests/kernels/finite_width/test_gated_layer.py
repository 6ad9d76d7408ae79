"""The law of gradients at a layer of units, given only the layer."""

import pytest
import torch

from skiplens.kernels.finite_width.gated_layer import Draws, draw_layer, pull_back, relative_slack, slack_factor
from skiplens.kernels.finite_width.simulation import estimate
from tests.tolerances import STANDARD_ERRORS, assert_close

WIDTH = 3


def layer_of(gram, draws):
    gram = torch.tensor(gram).expand(draws.networks, -1, -1)
    return draw_layer(slack_factor(gram, relative_slack(gram, draws.dtype)).forward(), WIDTH, draws)


@pytest.fixture
def draws(generator):
    return Draws(generator, 40_000, 2, torch.float64)


def test_a_layer_holds_the_relu_of_its_gaussian_directions(draws):
    layer = layer_of([[2.0, 1.0], [1.0, 3.0]], draws)
    upper = torch.linalg.cholesky(torch.tensor([[2.0, 1.0], [1.0, 3.0]])).mT
    assert_close(layer.outputs, 2**0.5 * torch.relu(upper.mT @ layer.directions))
    assert_close(layer.gram, layer.outputs @ layer.outputs.mT)
    inner = upper.mT @ layer.directions @ layer.directions.mT @ upper / WIDTH
    assert estimate(inner).deviation(torch.tensor([[2.0, 1.0], [1.0, 3.0]])).abs().max() < STANDARD_ERRORS


@pytest.mark.parametrize("gram", [[[2.0, 1.0], [1.0, 3.0]], [[2.0, 2.0], [2.0, 2.0]]], ids=["regular", "singular"])
def test_gradients_are_gaussian_and_independent_of_the_layer(gram, draws):
    """Averaged over what the matrix did forward, Wb has independent normal units of covariance bᵀb, whatever U is.

    In the singular case rounding makes the two columns of U differ by as much as the slack: neither one direction nor
    two, and the noise must fill exactly what the forward pass leaves open.
    """
    layer = layer_of(gram, draws)
    noise_factor = torch.tensor([[1.0, 0.5], [0.0, 2.0]]).expand(draws.networks, -1, -1)
    pulled = pull_back(layer, draws.normal(2) @ noise_factor, noise_factor, draws)
    open_gates = (layer.outputs > 0).double()
    expected = 2 * (open_gates @ open_gates.mT) * (noise_factor.mT @ noise_factor)
    assert estimate(pulled.gram - expected).deviation(0.0).abs().max() < STANDARD_ERRORS
