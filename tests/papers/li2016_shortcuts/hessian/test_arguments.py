import pytest
import torch

from skiplens.base.errors import InvalidInputError, TooLargeError
from skiplens.linalg import second_moments
from skiplens.linalg.second_moments import second_moments as second_moments_second_moments
from skiplens.papers.li2016_shortcuts.hessian import activations
from skiplens.papers.li2016_shortcuts.hessian.at_zero import hessian_at_zero
from skiplens.papers.li2016_shortcuts.hessian.exact import shortcut_hessian
from skiplens.papers.li2016_shortcuts.hessian.linear import linear_hessian, shortcut_units

X = torch.eye(3, dtype=torch.float64)


@pytest.mark.parametrize(
    ("inputs", "targets", "message"),
    [
        (torch.zeros(0, 3), torch.zeros(0, 3), r"at least one sample; got shape \(0, 3\)"),
        (torch.zeros(3), torch.zeros(3, 3), r"The inputs must be a floating-point matrix.*\(3,\)"),
        (X, torch.zeros(3, 3, dtype=torch.int64), "The targets must be.*int64.*one-hot"),
        (X, torch.zeros(2, 3), "3 inputs but 2 targets"),
        (X, torch.zeros(3, 2), "the same width; got 3 and 2"),
    ],
)
def test_data_of_the_wrong_form(inputs, targets, message):
    with pytest.raises(InvalidInputError, match=message):
        second_moments.check_data(inputs, targets)


def test_nan_is_found_and_its_place_told():
    broken = X.clone()
    broken[1, 2] = torch.nan
    with pytest.raises(InvalidInputError, match=r"The inputs hold nan at position \(1, 2\)"):
        hessian_at_zero(broken, X, units=2)
    with pytest.raises(InvalidInputError, match=r"The weights hold nan at position \(0, 1, 2\)"):
        shortcut_hessian(broken[None], X, X, branch_depth=1)


@pytest.mark.parametrize(
    ("weights", "branch_depth", "message"),
    [
        (torch.zeros(2, 3, 4), 2, r"stack of square matrices.*\(2, 3, 4\)"),
        (torch.zeros(3, 3, 3), 2, "3 matrices do not make whole units of branch_depth=2"),
        (torch.zeros(3, 3, 3), 0, "branch_depth must be.*at least 1; got 0"),
        (torch.zeros(2, 4, 4), 2, "width 4, but the data have 3"),
    ],
)
def test_weights_of_the_wrong_form(weights, branch_depth, message):
    with pytest.raises(InvalidInputError, match=message):
        shortcut_hessian(weights, X, X, branch_depth)


@pytest.mark.parametrize("units", [0, -1, True])
def test_units_must_be_a_whole_number(units):
    with pytest.raises(InvalidInputError, match="units must be the number of residual units, a whole number"):
        hessian_at_zero(X, X, units=units)


def test_too_large_for_a_dense_matrix(monkeypatch):
    monkeypatch.setattr(activations, "budget_bytes", lambda device: 2**20)
    weights = torch.zeros(32, 3, 3)
    message = r"dense Hessian of 288 parameters with its workspace needs 1.3 MiB, but only 1.0 MiB may be used"
    with pytest.raises(TooLargeError, match=message + ".*linear_spectrum"):
        linear_hessian(shortcut_units(weights), second_moments_second_moments(X, X))
    with pytest.raises(TooLargeError, match=message + ".*use .spectrum"):
        hessian_at_zero(X, X, units=16).dense()
