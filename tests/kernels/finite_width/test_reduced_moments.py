"""Moments of reduced networks: tables, closed sums, and theorem 4."""

from fractions import Fraction

import pytest

from skiplens.kernels.finite_width.moments import kernel_moments
from skiplens.kernels.finite_width.networks import DenseNet, ResNet, Vanilla
from skiplens.kernels.finite_width.reduced_moments import (
    activation_fourth_moment,
    fourth_moment_growth,
    reduced_moments,
)

PRINTED = 1e-13


@pytest.mark.parametrize(
    ("network", "fourth"),
    [
        (ResNet(1, 4, 1, 0.5), 1.6875),
        (ResNet(1, 10, 2, 0.5), 0.405),
        (ResNet(3, 8, 2, 0.5), 1.46123352460563),
        (ResNet(3, 8, 3, 0.7), 7.34499334572651),
        (ResNet(10, 50, 2, 0.3), 0.145268081166005),
        (ResNet(10, 100, 2, 0.3), 0.12923620086608),
    ],
)
def test_resnet_table(network, fourth):
    assert reduced_moments(network).fourth == pytest.approx(fourth, rel=PRINTED)
    assert float(reduced_moments(network, exact=True).fourth) == pytest.approx(fourth, rel=PRINTED)


def test_figure_4_targets():
    found = reduced_moments(ResNet(20, 50, 2, 0.3))
    assert found.second == pytest.approx(0.46275, abs=5e-6)
    assert found.jacobian_fourth == pytest.approx(0.29111, abs=5e-6)
    assert found.fourth == pytest.approx(0.87332, abs=5e-6)
    tiny = reduced_moments(ResNet(4, 6, 2, 0.5), exact=True)
    assert tiny.second == Fraction(48828125, 10**8)
    assert float(tiny.fourth) == pytest.approx(3.68075, abs=5e-6)


@pytest.mark.parametrize(
    ("layer", "source", "fourth"),
    [
        (1, None, 3.86359203532236),
        (2, None, 1.89905371227709),
        (3, None, 1.10934820816187),
        (4, None, 10.185833547668),
        (2, 0, 0.392907664609053),
        (2, 1, 0.720330718449932),
        (4, 3, 1.10934820816187),
    ],
)
def test_densenet_table(layer, source, fourth):
    assert reduced_moments(DenseNet(4, 6), layer, source).fourth == pytest.approx(fourth, rel=PRINTED)
    assert float(reduced_moments(DenseNet(4, 6), layer, source, exact=True).fourth) == pytest.approx(
        fourth, rel=PRINTED
    )


@pytest.mark.parametrize("network", [ResNet(5, 9, 3, Fraction(1, 2)), DenseNet(6, 4), Vanilla(5, 3)])
def test_squared_jacobians_add_up_to_the_kernel(network):
    per_layer = network.branch_depth if isinstance(network, ResNet) else 1
    total = sum(reduced_moments(network, layer, exact=True).second for layer in range(1, network.depth + 1))
    assert per_layer * total == kernel_moments(network, exact=True).mean


def test_matrices_of_a_dense_layer_add_up_to_the_layer():
    network = DenseNet(5, 6)
    for layer in range(1, 6):
        single = sum(reduced_moments(network, layer, source, exact=True).second for source in range(layer))
        assert single == reduced_moments(network, layer, exact=True).second


def test_jacobian_relations():
    found = reduced_moments(DenseNet(4, 6), 2, exact=True)
    assert found.jacobian_fourth == found.fourth / 3
    assert found.jacobian_relative_variance == found.jacobian_fourth / found.second**2 - 1


def test_vanilla_output_is_its_own_reduction():
    n = Fraction(8)
    assert reduced_moments(Vanilla(3, 8), 2, exact=True).fourth == 3 * (1 + 2 / n) * (1 + 5 / n) ** 3


def test_activations():
    n = Fraction(6)
    resnet = ResNet(4, 6, 2, Fraction(1, 2))
    assert activation_fourth_moment(resnet, 3, exact=True) == (1 + 2 / n) * fourth_moment_growth(resnet) ** 3
    dense = activation_fourth_moment(DenseNet(4, 6), 2, exact=True)
    assert dense == (1 + 5 / n) * (1 + 5 / n) * (1 + 5 / (4 * n))
    assert activation_fourth_moment(Vanilla(4, 6), 2, exact=True) == (1 + 2 / n) * (1 + 5 / n) ** 2
    for network in (resnet, DenseNet(4, 6), Vanilla(4, 6)):
        exact = activation_fourth_moment(network, 3, exact=True)
        assert activation_fourth_moment(network, 3) == pytest.approx(float(exact), rel=1e-14)


def test_a_deep_network_gives_infinity_and_no_error():
    found = reduced_moments(ResNet(10**6, 50, 2, 0.3))
    assert found.second == found.fourth == found.jacobian_relative_variance == float("inf")
