import pytest
import torch

from skiplens.base.errors import InvalidInputError
from skiplens.papers.littwin2016_ensembles.spin_glass.complexity import Mixture
from skiplens.paths.weights import path_moments
from tests.tolerances import assert_close


def test_moments_are_derivatives_of_the_covariance():
    mixture = Mixture(torch.tensor([0.3, 0.1, 0.7, 0.2]))
    t = torch.tensor(1.0, requires_grad=True)
    nu = mixture.covariance(t)
    (slope,) = torch.autograd.grad(nu, t, create_graph=True)
    (curvature,) = torch.autograd.grad(slope, t)
    assert nu.item() == pytest.approx(1, rel=1e-14)
    assert mixture.slope == pytest.approx(slope.item(), rel=1e-14)
    assert mixture.curvature == pytest.approx(curvature.item(), rel=1e-14)
    assert mixture.spread == pytest.approx(mixture.curvature + mixture.slope - mixture.slope**2, rel=1e-13)


def test_pure_models():
    for order in (1, 2, 7):
        mixture = Mixture.pure(order)
        assert (mixture.slope, mixture.curvature, mixture.spread) == (order, order * (order - 1), 0)
        assert mixture.curvature_ratio == order - 1


@pytest.mark.parametrize("shortest", [1, 2])
def test_mixture_of_a_network_has_its_path_moments(shortest):
    mixture, moments = Mixture.of_network(30, 0.2, shortest), path_moments(30, 0.2, shortest)
    assert mixture.slope == pytest.approx(moments.mean.item(), rel=1e-13)
    assert mixture.spread == pytest.approx(moments.variance.item(), rel=1e-12)
    assert mixture.curvature_ratio == pytest.approx(moments.curvature_ratio.item(), rel=1e-13)
    assert (mixture.weights[0] == 0) == (shortest == 2)


def test_weights_are_normalised():
    assert_close(Mixture(torch.tensor([3.0, 4.0])).weights, torch.tensor([0.6, 0.8]))


@pytest.mark.parametrize("weights", [[0.0, 0.0], [1.0, float("nan")], []])
def test_a_mixture_needs_weights(weights):
    with pytest.raises(InvalidInputError, match="A mixture needs a list of finite weights, one for each order from 1"):
        Mixture(torch.tensor(weights))


def test_orders_start_at_one():
    with pytest.raises(InvalidInputError, match="order of interactions must be at least 1; got 0"):
        Mixture.pure(0)
