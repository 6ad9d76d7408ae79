"""One door for all networks of the paper, and the orthogonal start."""

import pytest
import torch

from skiplens import zoo
from skiplens.base.errors import InvalidInputError
from skiplens.linalg.second_moments import second_moments
from skiplens.papers.li2016_shortcuts.hessian.activations import BranchActivations
from skiplens.papers.li2016_shortcuts.hessian.at_zero import orthogonal_spectrum
from skiplens.papers.li2016_shortcuts.hessian.exact import (
    hessian_by_autograd,
    shortcut_hessian,
    shortcut_outputs,
    square_loss,
)
from skiplens.papers.li2016_shortcuts.hessian.linear import linear_hessian, plain_units
from skiplens.papers.li2016_shortcuts.hessian.spectrum import spectrum_of
from skiplens.zoo.li2016 import matrices
from tests.papers.li2016_shortcuts.hessian.reference import autograd_hessian, data, network_loss, random_task, stacked
from tests.tolerances import assert_close

NAMES = [("identity",) * 3, ("identity", "relu", "identity"), ("tanh",) * 3, ("relu", "gelu", "tanh"), ("relu",) * 3]


@pytest.mark.parametrize("names", NAMES, ids="-".join)
@pytest.mark.parametrize("branch_depth", [1, 2, 3])
def test_hessian_of_any_network_is_that_of_autograd(branch_depth, names, generator):
    x, y = random_task(generator)
    weights = 0.5 * torch.randn(2 * branch_depth, 3, 3, generator=generator)
    expected = autograd_hessian(network_loss(x, y, branch_depth, names), list(weights))
    assert_close(shortcut_hessian(weights, x, y, branch_depth, BranchActivations(*names)), expected)


TANH = {  # units and matrices per unit: loss, gradient norm
    (3, 8, 1): (1.135688637387164, 1.699216904823858),
    (3, 8, 2): (1.142370002399967, 0.735748155174687),
    (10, 40, 1): (10.21280993645521, 15.63763320400848),
    (10, 40, 2): (3.516370345718512, 4.010204920364007),
}


@pytest.mark.parametrize(("d", "m", "branch_depth"), TANH)
def test_tanh_reference_values(d, m, branch_depth):
    x, y = data(d, m)
    weights = stacked(d, 6 if d == 3 else 12, 0.4).requires_grad_()
    loss = square_loss(shortcut_outputs(weights, x, branch_depth, BranchActivations("tanh", "tanh", "tanh")), y)
    found = torch.stack([loss.detach(), torch.autograd.grad(loss, weights)[0].norm()])
    assert_close(found, torch.tensor(TANH[d, m, branch_depth]))


def test_outputs_are_those_of_the_zoo():
    options = {"pre": "tanh", "mid": "relu", "post": "tanh", "branch_depth": 3, "units": 2, "width": 4}
    network, (x, _) = zoo.build("shortcut_network", initialisation="xavier", **options), data(4, 6)
    found = shortcut_outputs(torch.stack(list(matrices(network))), x, 3, BranchActivations("tanh", "relu", "tanh"))
    assert_close(found.detach(), network(x).detach())


def test_hessian_by_autograd_of_a_polynomial(generator):
    v = torch.randn(5, generator=generator)
    found = hessian_by_autograd(lambda p: (p**3).sum() + p[0] * p[1], v)
    expected = torch.diag(6 * v)
    expected[0, 1] = expected[1, 0] = 1
    assert_close(found, expected)


def orthogonal(count, d, generator):
    return torch.linalg.qr(torch.randn(count, d, d, generator=generator)).Q


def test_orthogonal_weights_reference():
    c, s, u, v = *_turn(0.3), *_turn(0.7)
    Q_1 = torch.tensor([[c, -s, 0], [s, c, 0], [0, 0, 1]])
    Q_2 = torch.tensor([[1, 0, 0], [0, u, -v], [0, v, u]])
    weights = torch.stack([Q_1, Q_2, Q_1 @ Q_2])
    x, y = data(3, 8)
    for spectrum in (
        orthogonal_spectrum(weights, x, y),
        spectrum_of(linear_hessian(plain_units(weights), second_moments(x, y))),
    ):
        found = torch.tensor([spectrum.largest, spectrum.smallest])
        assert_close(found, torch.tensor([2.46916618307156, -0.70455932318751]))
        assert spectrum.count_below(0.0) == 12


def _turn(angle):
    return torch.tensor(angle).cos().item(), torch.tensor(angle).sin().item()


@pytest.mark.parametrize("depth", [1, 2, 9])
def test_orthogonal_weights_have_the_spectrum_of_the_dense_hessian(depth, generator):
    x, y = random_task(generator)
    weights = orthogonal(depth, 3, generator)
    dense = spectrum_of(linear_hessian(plain_units(weights), second_moments(x, y)))
    counted = orthogonal_spectrum(weights, x, y)
    for rank in range(1, dense.size + 1, 4):
        assert counted.eigenvalue(rank) == pytest.approx(dense.eigenvalue(rank), rel=0, abs=1e-12 * dense.largest)


def test_weights_that_are_not_orthogonal():
    x, y = data(3, 8)
    message = r"must be orthogonal; WᵀW differs from the identity by 3.*linear_spectrum"
    with pytest.raises(InvalidInputError, match=message):
        orthogonal_spectrum(2 * torch.eye(3)[None], x, y)
