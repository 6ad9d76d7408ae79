import math

import mpmath as mp
import pytest
import torch

from skiplens.kernels.arc_cosine import (
    Correlation,
    angle_of,
    arc_cosine,
    correlation_of_angle,
    correlation_of_cosine,
    correlation_of_supplement,
)
from tests.kernels import reference

ANGLES = [1e-12, 1e-8, 1e-4, 0.1, 0.69, 0.71, 1.5, math.pi / 2, 1.6, 2.5, 3.0]
ROUNDINGS = {torch.float64: 8 * 2**-52, torch.float32: 8 * 2**-23}


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@pytest.mark.parametrize("angle", ANGLES)
def test_both_kernels_against_mpmath_with_relative_accuracy_of_the_distance_from_one(angle, dtype):
    with mp.workdps(60):
        correlation = correlation_of_angle(torch.tensor([angle], dtype=dtype))
        below_one = mp.mpf(float(correlation.below_one))
        rho = 1 - below_one
        expected = 1 - reference.kappa1(rho), reference.kappa0(rho)
        found, kappa0 = arc_cosine(correlation)
        assert abs(mp.mpf(float(found.below_one)) / expected[0] - 1) < ROUNDINGS[dtype]
        assert abs(mp.mpf(float(kappa0)) / expected[1] - 1) < ROUNDINGS[dtype] * (1 + 1 / (math.pi - angle))


@pytest.mark.parametrize("supplement", [1e-10, 1e-5, 0.3, 1.5])
def test_near_opposite_inputs_kappa0_keeps_its_relative_accuracy(supplement):
    _, kappa0 = arc_cosine(correlation_of_supplement(torch.tensor([supplement])))
    assert abs(float(kappa0) / (supplement / math.pi) - 1) < 8 * 2**-52


def test_known_values_at_both_ends_and_in_the_middle():
    found, kappa0 = arc_cosine(correlation_of_cosine(torch.tensor([1.0, 0.0, -1.0])))
    assert found.value.tolist() == pytest.approx([1.0, 1 / math.pi, 0.0], abs=2**-52)
    assert kappa0.tolist() == pytest.approx([1.0, 0.5, 0.0], abs=2**-52)


@pytest.mark.parametrize("angle", [0.0, 1e-9, 1.0, 2.0, math.pi])
def test_angle_comes_back(angle):
    correlation = (
        correlation_of_angle(torch.tensor([angle]))
        if angle < 2
        else correlation_of_supplement(torch.tensor([math.pi - angle]))
    )
    assert float(angle_of(correlation)) == pytest.approx(angle, rel=4 * 2**-52, abs=1e-150)


def test_kappa0_is_the_derivative_of_kappa1():
    rho = torch.linspace(-0.99, 0.99, 21).requires_grad_()
    found, kappa0 = arc_cosine(correlation_of_cosine(rho))
    (slope,) = torch.autograd.grad(found.value.sum(), rho)
    torch.testing.assert_close(slope, kappa0, rtol=1e-13, atol=0)


def test_gradients_are_finite_at_both_ends():
    rho = torch.tensor([1.0, -1.0], requires_grad=True)
    found, kappa0 = arc_cosine(correlation_of_cosine(rho))
    (slope,) = torch.autograd.grad(found.value.sum() + kappa0.sum(), rho)
    assert torch.isfinite(slope).all()


def test_cosines_rounded_beyond_one_are_cut_off():
    below_one, above_minus_one = correlation_of_cosine(torch.tensor([1 + 1e-15, -1 - 1e-15]))
    assert below_one[0] == 0 and above_minus_one[1] == 0


def test_value_is_rounded_once():
    correlation = Correlation(torch.tensor([0.25, 1.75]), torch.tensor([1.75, 0.25]))
    assert correlation.value.tolist() == [0.75, -0.75]
