import pytest
import torch

from skiplens.base.errors import DidNotConverge
from skiplens.kernels.finite_width.gated_layer import Draws, factor, relative_slack, slack_factor
from skiplens.kernels.finite_width.simulation import estimate
from tests.tolerances import STANDARD_ERRORS, assert_close


def draws(generator, networks, inputs, dtype=torch.float64):
    return Draws(generator, networks, inputs, dtype)


@pytest.mark.parametrize("degrees", [0, 1, 2, 3, 40])
def test_wishart_law(degrees, generator):
    """Mean k·I; variances 2k on and k off the diagonal, those of GᵀG; rank min(k, p)."""
    upper = draws(generator, 40_000, 3).wishart_factor(degrees)
    product = upper.mT @ upper
    assert torch.equal(upper, upper.triu())
    if degrees == 0:
        assert not product.any()
        return
    assert (torch.linalg.matrix_rank(upper[:50], atol=1e-12) == min(degrees, 3)).all()
    wanted = degrees * torch.eye(3)
    assert estimate(product).deviation(wanted).abs().max() < STANDARD_ERRORS
    spread = degrees * (torch.eye(3) + 1)
    assert estimate((product - wanted).square()).deviation(spread).abs().max() < STANDARD_ERRORS


def test_chi_law(generator):
    found = draws(generator, 50_000, 1).chi(torch.tensor([1, 5, 0, -2]))
    assert not found[:, 2:].any()
    assert estimate(found[:, :2].square()).deviation(torch.tensor([1.0, 5.0])).abs().max() < STANDARD_ERRORS


def test_float32_draws_are_kept_in_float64(generator):
    small, wide = draws(generator, 2, 3, torch.float32).normal(3), draws(generator, 2, 3, torch.float32).wide_normal(7)
    assert (small.dtype, wide.dtype, wide.shape) == (torch.float64, torch.float32, (2, 3, 7))


def test_factor_of_a_singular_matrix_keeps_the_diagonal(generator):
    vectors = torch.randn(4, 6, 3, generator=generator)[:, :, [0, 1, 2, 0]]
    gram = vectors.mT @ vectors
    found = factor(gram, torch.float64)
    assert torch.equal(found, found.triu())
    assert_close((found.mT @ found).diagonal(dim1=1, dim2=2), gram.diagonal(dim1=1, dim2=2))
    assert_close(found.mT @ found, gram)


def test_a_dead_layer_has_a_factor():
    gram = torch.zeros(1, 2, 2)
    found = slack_factor(gram, relative_slack(gram, torch.float32))
    assert not found.forward().any()
    assert found.upper.isfinite().all() and (found.upper.diagonal(dim1=1, dim2=2) > 0).all()


def test_slack_grows_where_rounding_needs_it():
    gram = torch.tensor([[[1.0, 1.0 + 1e-5], [1.0 + 1e-5, 1.0]], [[1.0, 0.0], [0.0, 1.0]]])
    found = slack_factor(gram, torch.full((2, 2), 1e-6))
    assert found.slack[0, 0] == pytest.approx(1e-4) and found.slack[1, 0] == pytest.approx(1e-6)


def test_overflow_is_told():
    gram = torch.full((1, 1, 1), float("nan"))
    with pytest.raises(DidNotConverge, match=r"left the range of its dtype\. Use float64, or a smaller branch_scale"):
        slack_factor(gram, torch.ones(1, 1))
