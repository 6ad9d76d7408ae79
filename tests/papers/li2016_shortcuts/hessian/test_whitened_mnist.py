"""The note's values on whitened MNIST; needs the data set, fetched if it is not there."""

import pytest
import torch

from skiplens.data.preprocessing import fit_whitening
from skiplens.linalg.second_moments import second_moments
from skiplens.papers.li2016_shortcuts.hessian.at_zero import hessian_at_zero
from tests.real_data import real
from tests.tolerances import assert_close

pytestmark = pytest.mark.slow


def whitened(samples):
    digits = real("mnist")
    images, labels = digits.images[:samples], digits.labels[:samples]
    white = fit_whitening(images, 10)(images)
    return white.double(), torch.nn.functional.one_hot(labels.long(), 10).double()


@pytest.fixture(scope="module")
def mnist():
    return whitened(60_000)


# largest, smallest, smallest absolute, decile, true condition number, proxy, index
ROWS = {
    1: (1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 0.0),
    2: (3.17523, -1.17523, 0.77762, 0.84982, 4.08, 3.736, 0.2750),
    4: (7.52469, -1.26277, 0.50236, 0.80472, 15.0, 9.351, 0.4125),
    8: (16.22313, -1.51795, 0.10824, 0.79025, 150, 20.53, 0.4825),
    16: (33.61977, -2.28085, 0.01613, 0.77898, 2085, 43.16, 0.5194),
    32: (68.41294, -4.24217, 0.02596, 0.77823, 2635, 87.91, 0.5341),
}


@pytest.mark.parametrize("units", ROWS)
def test_one_matrix_per_unit_at_zero(mnist, units):
    spectrum = hessian_at_zero(*mnist, units, branch_depth=1).spectrum
    found = (spectrum.largest, spectrum.smallest, spectrum.absolute_value(1), spectrum.absolute_quantile())
    *values, condition, proxy, index = ROWS[units]
    assert found == pytest.approx(values, rel=0, abs=6e-6)  # half of the last printed digit, and some
    assert spectrum.full_condition_number == pytest.approx(condition, rel=2e-3)
    assert spectrum.condition_number == pytest.approx(proxy, rel=2e-4)
    assert spectrum.index == pytest.approx(index, abs=6e-5)


def test_growth_is_linear_to_ten_thousand_units(mnist):
    assert hessian_at_zero(*mnist, 10_000, 1).spectrum.largest == pytest.approx(2.17457 * 10_000 - 1.174, rel=1e-5)


def test_two_matrices_per_unit(mnist):
    moments = second_moments(*mnist)
    assert_close(moments.lowest_loss(), torch.tensor(0.337141010751386), relative=1e-11)
    assert_close(moments.loss(torch.eye(10)), torch.tensor(5.015909778596135), relative=1e-11)
    spectrum = hessian_at_zero(*mnist, units=48).spectrum
    assert spectrum.full_condition_number == pytest.approx(1.490696600998759, rel=1e-10)
    assert spectrum.largest == pytest.approx(1.17695496167, rel=1e-10)
    assert spectrum.absolute_value(1) == pytest.approx(0.789533538134, rel=1e-10)


def test_first_thousand_images():
    x, y = whitened(1000)
    moments = second_moments(x, y)
    assert_close(moments.lowest_loss(), torch.tensor(0.326244356249556), relative=1e-11)
    assert_close(moments.loss(torch.eye(10)), torch.tensor(5.226017705973566), relative=1e-11)
    assert hessian_at_zero(x, y, 8).spectrum.full_condition_number == pytest.approx(1.558479010899168, rel=1e-10)
