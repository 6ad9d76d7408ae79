import pytest
import torch

from skiplens.base.errors import InvalidInputError
from skiplens.papers.li2016_shortcuts.hessian.activations import (
    ACTIVATIONS,
    Activation,
    BranchActivations,
    as_activation,
    vanishing,
)
from tests.tolerances import assert_close

# slope and curvature at zero by hand: gelu = x Φ(x), silu = x σ(x)
KNOWN = {
    "identity": (0, 1, 0),
    "tanh": (0, 1, 0),
    "gelu": (0, 0.5, 2 / (2 * torch.pi) ** 0.5),
    "silu": (0, 0.5, 0.5),
    "sigmoid": (0.5, 0.25, 0),
    "softplus": (0.6931471805599453, 0.5, 0.25),
}


@pytest.mark.parametrize("name", KNOWN)
def test_value_slope_and_curvature_at_zero(name):
    activation = ACTIVATIONS[name]
    found = torch.tensor([activation.at_zero(), activation.slope(), activation.curvature()])
    assert_close(found, torch.tensor(KNOWN[name], dtype=torch.float64))


@pytest.mark.parametrize(("name", "low", "high"), [("relu", 0.0, 1.0), ("leaky_relu", 0.01, 1.0), ("elu", 1.0, 1.0)])
def test_slope_at_a_kink_is_that_of_the_least_squares_line(name, low, high):
    # The least-squares line of low·x (x < 0), high·x (x > 0) on a symmetric interval has the mean slope.
    assert ACTIVATIONS[name].slope() == pytest.approx((low + high) / 2, rel=1e-12)


def test_slope_of_relu_is_the_slope_of_a_fitted_polynomial():
    x = torch.linspace(-1e-3, 1e-3, 2001)
    basis = torch.stack([x**k for k in range(2)], dim=1)
    fit = torch.linalg.lstsq(basis, torch.relu(x)[:, None]).solution.flatten()
    assert fit[1].item() == pytest.approx(ACTIVATIONS["relu"].slope(), rel=1e-9)


def test_derivative_is_taken_at_each_entry():
    x = torch.linspace(-2, 2, 9)
    assert_close(ACTIVATIONS["tanh"].derivative(x), 1 - torch.tanh(x) ** 2)


def test_a_branch_of_one_matrix_has_no_mid_activation():
    activations = BranchActivations(mid="relu")
    assert activations.names(1) == ("identity", "identity", "identity")
    assert activations.names(2) == ("identity", "relu", "identity")


def test_unknown_name_offers_the_nearest():
    with pytest.raises(InvalidInputError, match=r"no activation 'rellu'.*relu"):
        as_activation("rellu")
    mine = Activation("mine", torch.sin)
    assert as_activation(mine) is mine


def test_activation_that_does_not_vanish_is_refused():
    with pytest.raises(InvalidInputError, match=r"mid activation sigmoid has the value 0.5 at zero.*Subtract"):
        vanishing(ACTIVATIONS["sigmoid"], "mid")


def test_curvature_of_a_kink_is_refused():
    with pytest.raises(InvalidInputError, match=r"relu has no second derivative at zero.*smooth post activation"):
        ACTIVATIONS["relu"].curvature()
