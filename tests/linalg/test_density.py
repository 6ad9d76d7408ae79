import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from skiplens.base.errors import InvalidInputError
from skiplens.base.randomness import Randomness
from skiplens.linalg.density import DensityOptions, spectral_density
from skiplens.linalg.operator import DenseOperator
from tests.linalg.coverage import least_covered, spread_factor
from tests.linalg.matrices import with_spectrum
from tests.tolerances import assert_close

SPECTRUM = torch.cat([torch.linspace(-0.5, 1, 90, dtype=torch.float64), torch.tensor([4.0, 9.0]).double()])


@pytest.fixture
def matrix(generator):
    return with_spectrum(SPECTRUM, generator)


def test_the_quadrature_has_the_moments_of_its_probe(matrix):
    """k nodes integrate polynomials up to degree 2k − 1 exactly; the oracle multiplies the matrix itself."""
    density = spectral_density(DenseOperator(matrix), Randomness(3), DensityOptions(probes=2, steps=6))
    for number in range(2):
        signs = torch.randint(0, 2, (92, 1), generator=Randomness(3).child("probe", number).torch())
        probe = (2 * signs - 1).double()[:, 0] / 92**0.5
        power = probe
        for degree in range(12):
            assert_close((density.weights[number] * density.nodes[number] ** degree).sum(), probe @ power, 1e-11)
            power = matrix @ power


def test_weights_add_up_to_one_and_the_density_integrates_to_one(matrix):
    density = spectral_density(DenseOperator(matrix), Randomness(0))
    nodes, weights = density.merged()
    assert_close(weights.sum(), torch.tensor(1.0))
    assert (nodes.diff() >= 0).all() and (weights >= 0).all()
    grid = torch.linspace(-2, 11, 2001)
    values, _ = density.smoothed(grid, 0.1)
    assert_close(torch.trapezoid(values, grid), torch.tensor(1.0), relative=1e-9)  # tails beyond 15 widths


def test_the_errors_of_the_smoothed_density_cover_the_truth(matrix):
    grid, width = torch.tensor([-0.2, 0.3, 0.9]), 0.1
    curves = torch.exp(-((grid - SPECTRUM[:, None]) / width).square() / 2) / (width * (2 * torch.pi) ** 0.5)
    truth, covered = curves.mean(0), torch.zeros(3)
    for repeat in range(200):
        density = spectral_density(DenseOperator(matrix), Randomness(repeat), DensityOptions(probes=6, steps=24))
        values, errors = density.smoothed(grid, width)
        covered += (values - truth).abs() <= spread_factor(6) * errors
    assert covered.min() >= least_covered(200)


def test_probes_in_pieces_give_the_same_numbers(matrix):
    whole, pieces = (
        spectral_density(DenseOperator(matrix), Randomness(1), DensityOptions(5, 8, at_once)) for at_once in (None, 2)
    )
    assert_close(pieces.nodes, whole.nodes)
    assert_close(pieces.weights, whole.weights)


def test_without_the_basis_the_density_is_the_same(matrix):
    grid = torch.linspace(-1, 10, 200)
    kept, light = (
        spectral_density(DenseOperator(matrix), Randomness(0), DensityOptions(3, 80, reorthogonalise=keep)).smoothed(
            grid, 0.2
        )[0]
        for keep in (True, False)
    )
    assert_close(light, kept, relative=0.02)  # copies of converged eigenvalues take the place of other nodes


def test_residuals_bound_the_distance_to_an_eigenvalue(matrix):
    density = spectral_density(DenseOperator(matrix), Randomness(0), DensityOptions(3, 15))
    distance = (density.nodes[:, :, None] - SPECTRUM).abs().amin(2)
    assert (distance <= density.residuals + 1e-10).all()


@settings(max_examples=40)
@given(st.integers(0, 10_000), st.integers(2, 12), st.floats(-1.5, 3.5))
def test_the_bounds_hold_for_every_level(number, steps, level):
    generator = torch.Generator().manual_seed(number)
    values = torch.cat([torch.randn(25, generator=generator), torch.zeros(10)])
    A = with_spectrum(values, generator)
    density = spectral_density(DenseOperator(A), Randomness(number), DensityOptions(2, steps))
    eigenvalues, vectors = torch.linalg.eigh(A)
    low, high = density.bounds_below(torch.tensor([level]))
    for row in range(2):
        signs = torch.randint(0, 2, (35, 1), generator=Randomness(number).child("probe", row).torch())
        shares = (vectors.T @ (2 * signs - 1).double()[:, 0]).square() / 35
        below = shares[eigenvalues < level].sum()
        assert low[row, 0] - 1e-9 <= below <= high[row, 0] + 1e-9
        assert low[row, 0] - 1e-12 <= density.share_below(torch.tensor([level]))[row, 0] <= high[row, 0] + 1e-12


def test_a_probe_whose_space_ended_is_known_exactly(generator):
    A = with_spectrum(torch.tensor([-1.0] * 4 + [2.0] * 8), generator)
    density = spectral_density(DenseOperator(A), Randomness(0), DensityOptions(3, 5))
    assert density.complete.all()
    low, high = density.bounds_below(torch.tensor([0.0]))
    assert torch.equal(low, high) and ((low > 0) & (low < 1)).all()


@pytest.mark.parametrize(("probes", "steps"), [(1, 5), (3, 0)])
def test_too_little_is_refused(probes, steps, matrix):
    with pytest.raises(InvalidInputError, match=f"probes={probes} and steps={steps}; it takes at least 2 probes"):
        spectral_density(DenseOperator(matrix), Randomness(0), DensityOptions(probes, steps))


def test_a_width_of_nothing_is_refused(matrix):
    density = spectral_density(DenseOperator(matrix), Randomness(0), DensityOptions(2, 3))
    with pytest.raises(InvalidInputError, match=r"width=0\.0; the width must be positive"):
        density.smoothed(torch.zeros(1), 0.0)
