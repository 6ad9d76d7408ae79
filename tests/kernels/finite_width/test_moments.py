"""Exact moments against the reference tables, against a second recursion in rationals, and in extreme ranges."""

import math
from fractions import Fraction

import pytest
import torch

from skiplens.base.errors import InvalidInputError
from skiplens.kernels.finite_width.moments import kernel_moments
from skiplens.kernels.finite_width.networks import DenseNet, ResNet, Vanilla
from tests.kernels.finite_width import direct_recursion as direct
from tests.tolerances import RELATIVE

PRINTED = 1e-14  # the tables print 15 digits

TABLE = [
    (ResNet(1, 4, 1, 0.5), 0.5, 0.5625, 0.3125),
    (ResNet(1, 10, 2, 0.5), 0.5, 0.468, 0.218),
    (ResNet(3, 8, 2, 0.5), 2.34375, 12.2459588572383, 906344775 / 134217728),
    (ResNet(3, 8, 3, 0.7), 5.567864463, 112.536802204639, 81.535687526301),
    (ResNet(10, 50, 2, 0.3), 3.90940790299616, 17.483184380233, 2.19971422822416),
    (ResNet(10, 100, 2, 0.3), 3.90940790299616, 16.3494082491478, 1.06593809713894),
    (DenseNet(1, 5), 1, 2.8, 1.8),
    (DenseNet(2, 6), 1.5, 6.72222222222222, 161 / 36),
    (DenseNet(4, 8), 2.08333333333333, 11.4063856336806, 260485 / 36864),
    (DenseNet(10, 20), 2.92896825396825, 13.4323096846109, 4.85345465185706),
    (DenseNet(50, 500), 4.49920533832943, 20.6424882670331, 0.399639590581104),
    (Vanilla(3, 8), 3, 36.59423828125, 56513 / 2048),
    (Vanilla(10, 100), 10, 147.466775941834, 47.4667759418337),
]

FIGURE_5 = [
    (5, 0.00374757589978782, 1.03096304455636, 12.38231649152),
    (10, 0.0017581219704548, 0.852298628346595, 47.4667759418337),
    (20, 0.0008505488207524, 0.641405671514047, 186.372653497383),
    (40, 0.000418203220234606, 0.452132143677836, 739.146245487683),
    (80, 0.000207341312837343, 0.303801475486237, 2944.54848415552),
]

TRAINED = {"branches": (0, 0), "branches_and_first": (1, 0), "branches_and_last": (0, 1), "all": (1, 1)}


@pytest.mark.parametrize(("network", "mean", "second", "variance"), TABLE, ids=lambda v: str(v))
def test_reference_table(network, mean, second, variance):
    found = kernel_moments(network)
    assert found.mean == pytest.approx(mean, rel=PRINTED * 10)
    assert found.second_moment == pytest.approx(second, rel=PRINTED * 10)
    assert found.variance == pytest.approx(variance, rel=PRINTED * 10)


def test_exact_rationals_of_the_table():
    assert kernel_moments(ResNet(3, 8, 2, 0.5), exact=True).variance == Fraction(906344775, 134217728)
    assert kernel_moments(DenseNet(2, 6), exact=True).variance == Fraction(161, 36)
    assert kernel_moments(DenseNet(4, 8), exact=True).variance == Fraction(260485, 36864)
    assert kernel_moments(Vanilla(3, 8), exact=True).variance == Fraction(56513, 2048)


@pytest.mark.parametrize(("depth", "resnet", "dense", "vanilla"), FIGURE_5)
def test_figure_5_table(depth, resnet, dense, vanilla):
    n = 10 * depth
    tolerance = RELATIVE[torch.float64]
    assert kernel_moments(ResNet(depth, n, 2, 0.3 / depth**0.5)).variance == pytest.approx(resnet, rel=tolerance)
    assert kernel_moments(DenseNet(depth, n)).variance == pytest.approx(dense, rel=tolerance)
    assert kernel_moments(Vanilla(depth, n)).variance == pytest.approx(vanilla, rel=tolerance)


@pytest.mark.parametrize(
    ("network", "trained", "variance"),
    [
        (ResNet(3, 8, 2, 0.5), "branches_and_first", 14.7880259063095),
        (ResNet(3, 8, 2, 0.5), "branches_and_last", 14.7880259063095),
        (ResNet(3, 8, 2, 0.5), "all", 23.4982450441457),
        (DenseNet(4, 8), "branches_and_first", 11.8157006369697),
        (DenseNet(4, 8), "branches_and_last", 12.9438795513577),
        (DenseNet(4, 8), "all", 18.4009486304389),
    ],
)
def test_trained_end_layers(network, trained, variance):
    assert kernel_moments(network, trained).variance == pytest.approx(variance, rel=PRINTED * 10)


@pytest.mark.parametrize("trained", TRAINED)
@pytest.mark.parametrize(
    ("depth", "branch_depth", "scale", "width"), [(1, 1, "1/2", 1), (4, 3, "7/10", 5), (7, 2, "2", 3)]
)
def test_resnet_equals_the_recursion_in_second_moments(trained, depth, branch_depth, scale, width):
    first, last = TRAINED[trained]
    exact = kernel_moments(ResNet(depth, width, branch_depth, Fraction(scale)), trained, exact=True)
    assert exact.second_moment == direct.resnet_second_moment(depth, branch_depth, Fraction(scale), width, first, last)


@pytest.mark.parametrize("trained", TRAINED)
@pytest.mark.parametrize(("depth", "width"), [(1, 1), (2, 3), (9, 4)])
def test_densenet_and_vanilla_equal_the_recursion_in_second_moments(trained, depth, width):
    first, last = TRAINED[trained]
    dense = kernel_moments(DenseNet(depth, width), trained, exact=True)
    assert dense.second_moment == direct.densenet_second_moment(depth, width, first, last)
    vanilla = kernel_moments(Vanilla(depth, width), trained, exact=True)
    assert vanilla.second_moment == direct.vanilla_second_moment(depth, width, first, last)


@pytest.mark.parametrize("network", [ResNet(300, 40, 2, 0.3), ResNet(50, 7, 4, 0.9), DenseNet(60, 9), Vanilla(200, 30)])
@pytest.mark.parametrize("trained", TRAINED)
def test_floats_equal_rationals(network, trained):
    floating, exact = kernel_moments(network, trained), kernel_moments(network, trained, exact=True)
    assert floating.mean == pytest.approx(float(exact.mean), rel=1e-13)
    assert floating.relative_variance == pytest.approx(float(exact.relative_variance), rel=1e-13)
    assert floating.log_mean == pytest.approx(exact.log_mean, rel=1e-13, abs=1e-13)
    assert floating.log_relative_variance == pytest.approx(exact.log_relative_variance, rel=1e-12, abs=1e-12)


def test_a_wide_network_keeps_the_digits_of_its_small_variance():
    """In plain second moments 1e-15 of relative variance would be lost in rounding."""
    floating = kernel_moments(ResNet(20, 10**15, 2, 0.3))
    exact = kernel_moments(ResNet(20, 10**15, 2, 0.3), exact=True)
    assert floating.relative_variance == pytest.approx(float(exact.relative_variance), rel=1e-13)


def test_billion_blocks_neither_overflow_nor_lose_digits():
    found = kernel_moments(ResNet(10**9, 50, 2, 0.3))
    assert found.mean == math.inf and found.relative_variance == math.inf
    assert found.log_mean == pytest.approx(10**9 * math.log1p(0.09) + math.log(2 * 10**9 * 0.09 / 1.09), rel=1e-12)
    a, n = 0.09, 50
    beta = 1 + 2 * a * (1 + 2 / n) + a * a * (1 + 2 / n) * (1 + 5 / n)
    assert found.log_relative_variance == pytest.approx(10**9 * math.log(beta / (1 + a) ** 2), rel=1e-6)
    thin = kernel_moments(ResNet(10**9, 1000, 2, 1e-9**0.5))
    assert 1000 * thin.relative_variance == pytest.approx(20 / 3, rel=5e-3)  # the limit, up to 1/width


@pytest.mark.parametrize(("branch_depth", "limit"), [(1, 6.6587), (2, 6.6713), (3, 6.6844)])
def test_depth_limit_table(branch_depth, limit):
    found = kernel_moments(ResNet(1000, 10**7, branch_depth, 0.001 ** (1 / branch_depth)))
    assert 10**7 * found.relative_variance == pytest.approx(limit, abs=5e-5)


def test_closed_forms_of_one_layer():
    n = Fraction(7)
    linear = kernel_moments(ResNet(1, 7, 1, Fraction(1, 3)), exact=True).variance
    assert linear == Fraction(1, 9) * ((1 + 2 / n) ** 2 - 1)
    one_layer = (1 + 5 / n) * (1 + 2 / n) - 1
    assert kernel_moments(DenseNet(1, 7), exact=True).variance == one_layer
    assert kernel_moments(Vanilla(1, 7), exact=True).variance == one_layer


def test_a_kernel_of_nothing_is_refused():
    with pytest.raises(InvalidInputError, match=r"branch_scale 0 .* Choose branch_scale > 0"):
        kernel_moments(ResNet(3, 8, 2, 0.0))


def test_unknown_layers_are_refused():
    with pytest.raises(InvalidInputError, match=r"trained='branch' is not known\. Did you mean branches"):
        kernel_moments(Vanilla(3, 8), "branch")
