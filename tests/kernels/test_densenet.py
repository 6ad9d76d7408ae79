"""The tables of the theory note, §5 and §2.2, and the O(L²) recursion in mpmath."""

import math

import mpmath as mp
import pytest
import torch

from skiplens.kernels.arc_cosine import correlation_of_angle, correlation_of_cosine
from skiplens.kernels.infinite_network import infinite_densenet
from tests.kernels import reference
from tests.kernels.test_resnet import COSINES, assert_table

NTK = {
    1: "1 0.909538398844672 0.608997781044229 0.318309886183791 0.108997781044229 0.00953839884467208 0",
    2: "1.5 1.30636238216688 0.862167308827832 0.502009261233367 0.270993692025602 0.168715062337393 0.159154943091895",
    3: "1.83333333333333 1.55543045868441 1.01968347846098 0.623256474898138 0.382381721367806 0.278880543104903"
    " 0.269304016413069",
    5: "2.28333333333333 1.87524351759790 1.22143809876669 0.784648713741555 0.533899432396320 0.429285325845017"
    " 0.419698624438116",
    10: "2.92896825396825 2.30611167876724 1.49386975700363 1.01156201870366 0.751127679409295 0.645666247524152"
    " 0.636091908156356",
    100: "5.18737751763962 3.61919420446598 2.34512753409465 1.76954692929263 1.49566394918928 1.39077144004217"
    " 1.38140397580162",
    1000: "7.48547086055034 4.73958036898122 3.11676148204231 2.49880871809985 2.22418787015958 2.12182693482206"
    " 2.11275400997147",
}
NNGP = {
    2: "1 0.913639771536957 0.646451715971468 0.406020488192081 0.241849639682491 0.166315982322411 0.159154943091895",
    10: "1 0.923738622393613 0.724744978808638 0.570727717276364 0.475062700020212 0.433241996852694 0.429344145106912",
}


@pytest.mark.parametrize("depth", NTK)
def test_tangent_kernel_of_the_table(depth):
    assert_table(infinite_densenet(depth).recursion(correlation_of_cosine(torch.tensor(COSINES))).ntk, NTK[depth])


@pytest.mark.parametrize("depth", NNGP)
def test_covariance_of_the_table(depth):
    assert_table(infinite_densenet(depth).recursion(correlation_of_cosine(torch.tensor(COSINES))).nngp, NNGP[depth])


def test_tangent_kernel_with_all_layers_trained_of_the_table():
    printed = (
        "4.28333333333333 3.44123251911222 2.14350560801026 1.29205008186611 0.830139989800338 0.695470949140052"
        " 0.748849619005895"
    )
    assert_table(infinite_densenet(5, True).recursion(correlation_of_cosine(torch.tensor(COSINES))).ntk, printed)


@pytest.mark.parametrize("angle", [1e-5, 0.3, 1.5, 3.0])
def test_forward_recursion_equals_the_quadratic_backward_one(angle):
    found = infinite_densenet(30).recursion(correlation_of_angle(torch.tensor([angle])))
    with mp.workdps(40):
        expected = reference.densenet(mp.cos(mp.mpf(angle)), 30)
    assert [float(k) for k in found] == pytest.approx([float(k) for k in expected], rel=1e-13)


@pytest.mark.parametrize("outer", [False, True])
def test_diagonal_is_the_harmonic_number(outer):
    nngp, ntk = infinite_densenet(4, outer).at_equal_inputs()
    assert float(nngp) == 1 and float(ntk) == pytest.approx(25 / 12 + 2 * outer, rel=1e-15)
    assert float(infinite_densenet(4).log_scale) == 0


def test_slope_at_equal_inputs():
    depth, angle = 20, 1e-8
    harmonic = sum(1 / k for k in range(1, depth + 1))
    second = sum(1 / k**2 for k in range(1, depth + 1))
    there = infinite_densenet(depth)
    ratio = there.recursion(correlation_of_angle(torch.tensor([angle]))).ntk / there.at_equal_inputs().ntk
    assert (1 - float(ratio)) / angle == pytest.approx((harmonic**2 - second) / (2 * math.pi * harmonic), rel=1e-6)


@pytest.mark.parametrize(
    ("depth", "expected"),
    [(10, 0.529), (100, 0.466), (1000, 0.427), pytest.param(10_000, 0.401, marks=pytest.mark.slow)],
)
def test_the_quarter_is_approached_at_logarithmic_speed(depth, expected):
    there = infinite_densenet(depth)
    with torch.no_grad():
        ratio = there.recursion(correlation_of_angle(torch.ones(1))).ntk / there.at_equal_inputs().ntk
    assert float(ratio) == pytest.approx(expected, abs=5e-4)  # the note prints three digits
