import math

import mpmath as mp
import pytest
import torch

from skiplens.kernels.arc_cosine import correlation_of_angle, correlation_of_cosine
from skiplens.kernels.infinite_network import infinite_vanilla
from tests.kernels import reference
from tests.kernels.test_resnet import COSINES, assert_table

NTK = {
    3: "3 2.06084229195635 0.999716486914309 0.455562386689638 0.213969934841343 0.158978364970111 0.191977546082571",
    10: "10 5.24289669819074 3.21070479661543 2.60784119599948 2.37752684815982 2.30253147924217 2.30113821137279",
}


@pytest.mark.parametrize("depth", NTK)
def test_tangent_kernel_of_the_table(depth):
    assert_table(infinite_vanilla(depth).recursion(correlation_of_cosine(torch.tensor(COSINES))).ntk, NTK[depth])


@pytest.mark.parametrize("angle", [1e-5, 0.3, 1.5, 3.0])
def test_sum_over_layers_in_mpmath(angle):
    found = infinite_vanilla(30).recursion(correlation_of_angle(torch.tensor([angle])))
    with mp.workdps(40):
        expected = reference.vanilla(mp.cos(mp.mpf(angle)), 30)
    assert [float(k) for k in found] == pytest.approx([float(k) for k in expected], rel=1e-13)


@pytest.mark.parametrize("outer", [False, True])
def test_diagonal_counts_the_layers(outer):
    nngp, ntk = infinite_vanilla(7, outer).at_equal_inputs()
    assert float(nngp) == 1 and float(ntk) == 7 + 2 * outer
    assert float(infinite_vanilla(7).log_scale) == 0


def test_slope_at_equal_inputs():
    depth, angle = 12, 1e-8
    ratio = infinite_vanilla(depth).recursion(correlation_of_angle(torch.tensor([angle]))).ntk / depth
    assert (1 - float(ratio)) / angle == pytest.approx((depth + 1) / (2 * math.pi), rel=1e-6)
