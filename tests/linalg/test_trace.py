import pytest
import torch

from skiplens.base.errors import InvalidInputError
from skiplens.linalg.operator import DenseOperator
from skiplens.linalg.trace import _leave_one_out, hutch_plus_plus, hutchinson, sphere, xtrace
from tests.linalg.matrices import with_spectrum
from tests.tolerances import STANDARD_ERRORS, assert_close

ESTIMATORS = [hutchinson, hutch_plus_plus, xtrace]


@pytest.fixture
def decaying(generator):
    return with_spectrum(torch.logspace(0, -3, 60), generator)


@pytest.mark.parametrize("estimator", ESTIMATORS)
def test_unbiased_within_its_standard_error(estimator, decaying, generator):
    estimates = torch.tensor([estimator(DenseOperator(decaying), 24, generator).value for _ in range(200)])
    error = estimates.std() / 200**0.5
    assert (estimates.mean() - decaying.trace()).abs() <= STANDARD_ERRORS * error


@pytest.mark.parametrize("estimator", [hutchinson, hutch_plus_plus])
def test_stated_error_is_the_scatter_of_repetitions(estimator, decaying, generator):
    results = [estimator(DenseOperator(decaying), 60, generator) for _ in range(300)]
    scatter = torch.tensor([r.value for r in results]).std().item()
    stated = torch.tensor([r.standard_error**2 for r in results]).mean().item() ** 0.5
    # A standard deviation from 300 draws is known to about 300^-1/2 / √2 = 4 %; kurtosis can double that.
    assert abs(stated / scatter - 1) < STANDARD_ERRORS * 0.08


@pytest.mark.parametrize("estimator", [hutch_plus_plus, xtrace])
def test_low_rank_is_exact(estimator, generator):
    A = with_spectrum(torch.cat([torch.tensor([5.0, 3.0, 1.0]), torch.zeros(37)]), generator)
    result = estimator(DenseOperator(A), 18, generator)
    assert_close(torch.tensor(result.value), torch.tensor(9.0))


def test_sharper_estimators_are_sharper(decaying, generator):
    def spread(estimator):
        errors = [estimator(DenseOperator(decaying), 48, generator).value - decaying.trace() for _ in range(60)]
        return torch.stack(errors).square().mean().sqrt()

    plain, plus, leave_one_out = map(spread, ESTIMATORS)
    assert leave_one_out < plus < plain


def test_leave_one_out_equals_its_definition(decaying, generator):
    omega = sphere(60, 7, generator)
    expected = []
    for i in range(7):
        rest = [j for j in range(7) if j != i]
        Q = torch.linalg.qr(decaying @ omega[:, rest]).Q
        outside = omega[:, i] - Q @ (Q.T @ omega[:, i])
        scale = (60 - 6) / outside.square().sum()
        expected.append((Q.T @ decaying @ Q).trace() + scale * outside @ decaying @ outside)
    # Solving with the sketch's triangular factor loses its condition number, about 1e4 here.
    assert_close(_leave_one_out(DenseOperator(decaying), omega), torch.stack(expected), relative=1e-9)


def test_as_many_probes_as_rows_give_the_trace(generator):
    A = with_spectrum(torch.arange(1.0, 5.0), generator)
    result = xtrace(DenseOperator(A), 8, generator)
    assert_close(torch.tensor(result.value), torch.tensor(10.0))
    assert result.standard_error == 0


@pytest.mark.parametrize("estimator", ESTIMATORS)
def test_too_few_products_are_refused(estimator, generator):
    with pytest.raises(InvalidInputError, match=f"{estimator.__name__} got products=1; it needs at least"):
        estimator(DenseOperator(torch.eye(3)), 1, generator)
