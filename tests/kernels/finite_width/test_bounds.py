import pytest

from skiplens.kernels.finite_width.moments import kernel_moments
from skiplens.kernels.finite_width.networks import DenseNet, ResNet, Vanilla
from skiplens.kernels.finite_width.reduced_moments import minkowski_bound


@pytest.mark.parametrize(
    ("network", "loosest"),
    [
        (ResNet(1, 4, 1, 0.5), 1.0),
        (ResNet(3, 8, 2, 0.5), 2.4),
        (ResNet(3, 8, 3, 0.7), 2.4),
        (ResNet(10, 50, 2, 0.3), 2.4),
        (ResNet(1000, 50, 2, 0.03), 2.4),
        (DenseNet(2, 6), 1.46),
        (DenseNet(4, 8), 1.46),
        (DenseNet(10, 20), 1.46),
        (DenseNet(50, 500), 1.5),
        (Vanilla(10, 100), 2.4),
    ],
)
def test_minkowski_bounds_the_variance_and_is_not_far_off(network, loosest):
    exact, bound = kernel_moments(network), minkowski_bound(network)
    assert exact.variance <= bound.variance * (1 + 1e-12)
    assert bound.variance <= loosest * exact.variance * (1 + 1e-12)
    assert bound.relative_variance == pytest.approx(bound.variance / exact.mean**2, rel=1e-12)


def test_minkowski_closed_form_of_the_resnet():
    L, m, alpha, n = 7, 2, 0.4, 12
    a = alpha**m
    beta = 1 + 2 * a * (1 + 2 / n) + a**2 * (1 + 2 / n) * (1 + 5 / n) ** (m - 1)
    inner = (1 + 2 / n) ** 2 * (1 + 5 / n) ** (m - 1) * beta ** (L - 1) - (1 + a) ** (2 * (L - 1))
    assert minkowski_bound(ResNet(L, n, m, alpha)).variance == pytest.approx((m * L * a) ** 2 * inner, rel=1e-12)
