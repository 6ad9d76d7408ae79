import pytest
import torch

from skiplens.base.errors import InvalidInputError
from skiplens.linalg.singular_values import all_singular_values, singular_density
from tests.tolerances import assert_close


@pytest.mark.parametrize("shape", [(5, 5), (3, 7), (7, 3), (2, 4, 6), (1, 1)])
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_all_singular_values_descend_and_match_the_svd(shape, dtype, generator):
    matrices = torch.randn(shape, generator=generator).to(dtype)
    assert_close(all_singular_values(matrices), torch.linalg.svdvals(matrices.double()).to(dtype))


def test_small_singular_values_of_float32_are_right_to_1e8_of_the_largest(generator):
    Q, _ = torch.linalg.qr(torch.randn(6, 6, generator=generator))
    values = torch.tensor([1.0, 1e-1, 1e-2, 1e-3, 1e-4, 0.0])
    matrix = (Q * values).float()
    expected = torch.linalg.svdvals(matrix.double())
    assert float((all_singular_values(matrix).double() - expected).abs().max()) < 1e-7


def density(matrix, steps, probes, generator):
    starts = torch.randn(probes, matrix.shape[1], generator=generator)
    return singular_density(lambda v: v @ matrix.T, lambda u: u @ matrix, starts, steps)


def test_enough_steps_find_every_singular_value(generator):
    """With as many steps as columns the nodes of one probe are the singular values themselves."""
    matrix = torch.randn(9, 6, generator=generator)
    found = density(matrix, 6, 1, generator)
    assert_close(found.nodes, torch.linalg.svdvals(matrix), relative=1e-10)
    assert_close(found.weights.sum(), torch.tensor(1.0))


def test_moments_of_one_probe_are_exact(generator):
    """A Gauss rule of k nodes has the moments vᵀ(JᵀJ)^j v up to j = 2k − 1."""
    matrix = torch.randn(40, 30, generator=generator) / 30**0.5
    start = torch.randn(1, 30, generator=torch.Generator().manual_seed(5))
    found = singular_density(lambda v: v @ matrix.T, lambda u: u @ matrix, start, 4)
    unit = (start / start.norm())[0]
    gram, power = matrix.T @ matrix, unit
    for order in range(8):
        assert_close(found.weights @ found.nodes ** (2 * order), unit @ power, relative=1e-10)
        power = gram @ power


def test_density_has_the_mean_square_within_its_error(generator):
    matrix = torch.randn(80, 50, generator=generator)
    probes = 400
    starts = torch.randn(probes, 50, generator=generator)
    exact = [singular_density(lambda v: v @ matrix.T, lambda u: u @ matrix, s[None], 8) for s in starts]
    squares = torch.stack([found.weights @ found.nodes.square() for found in exact])
    truth = matrix.square().sum() / 50
    assert abs(float(squares.mean() - truth)) < 4 * float(squares.std() / probes**0.5)
    together = singular_density(lambda v: v @ matrix.T, lambda u: u @ matrix, starts, 8)
    assert_close(together.weights @ together.nodes.square(), squares.mean(), relative=1e-10)


def test_the_krylov_space_may_end_early(generator):
    """The identity ends after one step: all weight on the one singular value."""
    starts = torch.randn(2, 7, generator=generator)
    found = singular_density(lambda v: v, lambda u: u, starts, 5)
    assert_close(found.weights[found.nodes > 0.5].sum(), torch.tensor(1.0))
    assert_close(found.weights @ found.nodes, torch.tensor(1.0))


def test_zero_matrix(generator):
    found = density(torch.zeros(4, 3), 3, 2, generator)
    assert float(found.nodes.abs().max()) == 0 and float(found.weights.sum()) == pytest.approx(1)


@pytest.mark.parametrize(("steps", "probes"), [(0, 1), (3, 0)])
def test_nothing_to_do_is_refused(steps, probes, generator):
    with pytest.raises(InvalidInputError, match="at least 1 of each"):
        density(torch.eye(3), steps, probes, generator)
