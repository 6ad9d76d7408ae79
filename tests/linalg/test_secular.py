import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from skiplens.linalg.low_rank_update import refined_squares, rotated, secular_roots
from tests.tolerances import assert_close


def problem(size: int, seed: int, rho: float = 0.7):
    generator = torch.Generator().manual_seed(seed)
    poles = (4 * torch.rand(size, generator=generator)).sort().values
    z = torch.randn(size, generator=generator) / size**0.5
    return poles, z, rho


@pytest.mark.parametrize("size", [1, 2, 5, 40, 700])
def test_roots_are_the_eigenvalues(size, seed):
    """700 needs several windows with far poles; the oracle is LAPACK's dense solver."""
    poles, z, rho = problem(size, seed)
    expected = torch.linalg.eigvalsh(torch.diag(poles) + rho * torch.outer(z, z))
    assert_close(secular_roots(poles, z.square(), rho).values, expected)


@given(st.integers(2, 30), st.integers(0, 10**6), st.floats(1e-6, 1e6))
@settings(max_examples=40)
def test_roots_lie_between_the_poles_and_their_sum_is_the_trace(size, seed, rho):
    poles, z, _ = problem(size, seed)
    roots = secular_roots(poles, z.square(), rho).values
    assert bool((roots >= poles).all()) and bool((roots[:-1] <= poles[1:]).all())
    assert_close(roots.sum(), poles.sum() + rho * z.square().sum())


@pytest.mark.parametrize("size", [3, 700])
def test_refined_squares_reproduce_the_vector(size, seed):
    poles, z, rho = problem(size, seed)
    # Each square is a product of `size` ratios, and each ratio of differences of numbers near 4.
    assert_close(refined_squares(secular_roots(poles, z.square(), rho)), rho * z.square(), relative=1e-10)


@pytest.mark.parametrize("size", [3, 700])
def test_rotation_is_that_of_the_eigenvectors(size, seed):
    poles, z, rho = problem(size, seed)
    others = torch.randn(size, 3, generator=torch.Generator().manual_seed(seed + 1))
    roots = secular_roots(poles, z.square(), rho)
    turned = rotated(roots, refined_squares(roots), z, others)
    _, Q = torch.linalg.eigh(torch.diag(poles) + rho * torch.outer(z, z))
    # Signs of eigenvectors are free; close poles make single vectors less exact than their span.
    assert_close(turned.abs(), (Q.T @ others).abs(), relative=1e-9)
    assert_close(turned.T @ turned, others.T @ others)


def test_roots_close_to_their_poles_keep_their_digits():
    """A tiny vector moves each pole by ρ z² to first order; the offset has full relative precision."""
    poles = torch.tensor([1.0, 2.0, 3.0])
    roots = secular_roots(poles, torch.full((3,), 1e-20), 1.0)
    assert roots.origins.tolist() == [0, 1, 2]
    assert_close(roots.offsets, torch.full((3,), 1e-20))
