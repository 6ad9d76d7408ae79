import pytest
import torch

from skiplens.base.errors import InvalidInputError
from skiplens.linalg.operator import DenseOperator, FunctionOperator
from skiplens.linalg.trace import trace_and_frobenius
from tests.linalg.coverage import least_covered, spread_factor
from tests.linalg.matrices import with_spectrum
from tests.tolerances import STANDARD_ERRORS, assert_close

INDEFINITE = torch.linspace(-1, 3, 80, dtype=torch.float64)


@pytest.mark.parametrize(
    "spectrum", [INDEFINITE, torch.logspace(0, -3, 60, dtype=torch.float64)], ids=["indefinite", "decaying"]
)
def test_errors_cover_the_truth_in_95_of_100_repeats(spectrum, generator):
    A = with_spectrum(spectrum, generator)
    wide = spread_factor(8)
    covered = torch.zeros(2)
    for _ in range(200):
        found = trace_and_frobenius(DenseOperator(A), 24, generator)
        for place, (estimate, truth) in enumerate(((found.trace, A.trace()), (found.frobenius, A.norm()))):
            covered[place] += abs(estimate.value - truth.item()) <= wide * estimate.standard_error
    assert covered.min() >= least_covered(200)


def test_unbiased(generator):
    A = with_spectrum(INDEFINITE, generator)
    found = [trace_and_frobenius(DenseOperator(A), 24, generator) for _ in range(300)]
    for values, truth in (
        (torch.tensor([f.trace.value for f in found]), A.trace()),
        (torch.tensor([f.frobenius.value**2 for f in found]), A.square().sum()),
    ):
        assert (values.mean() - truth).abs() <= STANDARD_ERRORS * values.std() / len(found) ** 0.5


def test_known_directions_take_the_outliers_out_of_the_scatter(generator):
    A = with_spectrum(torch.cat([torch.linspace(-0.1, 0.3, 100), torch.tensor([5.0, 8.0, 20.0])]), generator)
    vectors = torch.linalg.eigh(A).eigenvectors[:, -3:]
    plain = [trace_and_frobenius(DenseOperator(A), 6, generator).trace.standard_error for _ in range(50)]
    known = [trace_and_frobenius(DenseOperator(A), 6, generator, vectors).trace.standard_error for _ in range(50)]
    assert sum(known) < sum(plain) / 2


def test_low_rank_is_exact(generator):
    A = with_spectrum(torch.cat([torch.tensor([5.0, -3.0, 1.0]), torch.zeros(37)]), generator)
    found = trace_and_frobenius(DenseOperator(A), 18, generator)
    assert_close(torch.tensor([found.trace.value, found.frobenius.value]), torch.tensor([3.0, 35**0.5]))


def test_a_sketch_of_everything_is_exact(generator):
    A = with_spectrum(torch.tensor([1.0, -2.0, 4.0]), generator)
    found = trace_and_frobenius(DenseOperator(A), 30, generator, known=torch.eye(3)[:, :1])
    assert_close(torch.tensor([found.trace.value, found.frobenius.value]), torch.tensor([3.0, 21**0.5]))
    assert found.trace.standard_error < 1e-12 and found.frobenius.standard_error < 1e-12


def test_the_zero_matrix_has_norm_zero(generator):
    found = trace_and_frobenius(DenseOperator(torch.zeros(5, 5)), 6, generator)
    assert found.frobenius.value == 0 and found.frobenius.standard_error == 0


def test_products_are_counted(generator):
    asked = []
    operator = FunctionOperator(lambda vector: (asked.append(1), vector)[1], torch.zeros(50))
    found = trace_and_frobenius(operator, 12, generator, known=torch.eye(50)[:, :2])
    assert found.trace.products == found.frobenius.products == len(asked) == 14


def test_too_few_products_are_refused(generator):
    with pytest.raises(InvalidInputError, match="trace_and_frobenius got products=5; it needs at least 6"):
        trace_and_frobenius(DenseOperator(torch.eye(3)), 5, generator)
