"""The tables of the theory note, §5 and §2.1, and mpmath's unnormalised recursion."""

import math

import mpmath as mp
import pytest
import torch

from skiplens.kernels.arc_cosine import correlation_of_angle, correlation_of_cosine
from skiplens.kernels.infinite_network import infinite_resnet
from tests.kernels import reference

COSINES = [1, 0.9, 0.5, 0, -0.5, -0.9, -1]

NTK = {
    (1, 2, 0.5): "0.5 0.420082183757209 0.235582778594391 0.0795774715459477 -0.0144172214056093 -0.0299178162427909 0",
    (2, 2, 0.5): "1.25 1.03669098990433 0.580227367590687 0.209899337043441 -0.0126964132336234 -0.0724880466544256"
    " -0.0427332786901060",
    (5, 2, 0.5): "6.103515625 4.87604204896828 2.72235426059475 1.16213138752003 0.244998034854265 -0.117928077129602"
    " -0.126978302203175",
    (10, 2, 0.3): "3.90940790299616 3.13437842239012 1.74829087580579 0.729340651281760 0.125407017539311"
    " -0.112954745920299 -0.125828657460666",
    (3, 3, 0.7): "5.567864463 4.15191661653346 2.35678105446135 1.30237955261403 0.742825602346812 0.516375312609731"
    " 0.504389738626488",
    (10, 3, 0.5): "10.8244034182280 7.67840994622885 4.35187125538478 2.54703066905992 1.58043835210472"
    " 1.13363053485094 1.06461795991630",
    (100, 2, 0.1): "5.35606698895352 4.23380339400280 2.35917255706907 1.03088174878480 0.248362124094257"
    " -0.0823129204642198 -0.120367328703141",
    (1000, 2, 1000**-0.5): "5.42841944502676 4.28650860785389 2.38830415183370 1.04665161647788 0.256480470513409"
    " -0.0788990443328646 -0.118753377327689",
}
NNGP = {
    (5, 2, 0.5): "3.0517578125 2.77408915367788 1.81835368941211 0.804407217925860 -0.0692987164662008"
    " -0.678450204889159 -0.816847619791582",
    (3, 3, 0.7): "2.422300607 2.21089188189680 1.50988830583879 0.768527399463704 0.110019152134270"
    " -0.372806199791509 -0.487230268565732",
    (10, 2, 0.3): "2.36736367459212 2.14831985826456 1.37287609844058 0.522915982233798 -0.232621270371312"
    " -0.775561628650417 -0.901933035616558",
}
NTK_ALL = {
    (5, 2, 0.5): "12.20703125 10.0311155600836 5.63927499079678 1.96653860544589 -0.635595192351240"
    " -2.07211517449370 -2.27861677247550",
    (3, 3, 0.7): "10.412465677 8.14405349763095 4.66562537173878 2.07090695207773 0.226256830121999"
    " -0.900091469751998 -1.10277307938177",
    (10, 2, 0.3): "8.64413525218039 7.17782862360621 4.02738571785749 1.25225663351556 -0.820166329324146"
    " -2.04524585243462 -2.26420619426951",
}


def limit(depth, branch_depth, scale, outer=False):
    return infinite_resnet(torch.full((depth,), float(scale)) ** branch_depth, branch_depth, outer)


def kernels(limit, correlation):
    scale = limit.log_scale.exp()
    return [kernel * scale for kernel in limit.recursion(correlation)]


def assert_table(found, printed):
    """The note prints 15 digits; its bound is 1e-12 relative to the largest entry of a row."""
    expected = torch.tensor([float(word) for word in printed.split()])
    assert (found - expected).abs().max() <= 1e-12 * expected.abs().max()


@pytest.mark.parametrize("options", NTK)
def test_tangent_kernel_of_the_table(options):
    assert_table(kernels(limit(*options), correlation_of_cosine(torch.tensor(COSINES)))[1], NTK[options])


@pytest.mark.parametrize("options", NNGP)
def test_covariance_of_the_table(options):
    assert_table(kernels(limit(*options), correlation_of_cosine(torch.tensor(COSINES)))[0], NNGP[options])


@pytest.mark.parametrize("options", NTK_ALL)
def test_tangent_kernel_with_all_layers_trained_of_the_table(options):
    assert_table(kernels(limit(*options, True), correlation_of_cosine(torch.tensor(COSINES)))[1], NTK_ALL[options])


@pytest.mark.parametrize("depth", [1, 7])
def test_one_matrix_per_branch_is_a_linear_network(depth):
    rho, alpha = torch.tensor(COSINES), 0.3
    _, ntk = kernels(limit(depth, 1, alpha), correlation_of_cosine(rho))
    torch.testing.assert_close(ntk, depth * alpha * (1 + alpha) ** (depth - 1) * rho, rtol=1e-14, atol=1e-15)


@pytest.mark.parametrize("outer", [False, True])
@pytest.mark.parametrize("branch_depth", [1, 2, 4])
def test_a_scale_of_its_own_for_each_block_against_mpmath(branch_depth, outer):
    scales = [0.7, 0.0, 0.1, 1.3]
    there = infinite_resnet(torch.tensor(scales), branch_depth, outer)
    found = kernels(there, correlation_of_angle(torch.tensor([1e-6, 0.4, 2.0])))
    with mp.workdps(40):
        for place, angle in enumerate([1e-6, 0.4, 2.0]):
            expected = reference.resnet(mp.cos(mp.mpf(angle)), [mp.mpf(a) for a in scales], branch_depth, outer)
            for kernel, wanted in zip(found, expected, strict=True):
                assert abs(float(kernel[place] - float(wanted))) < 1e-14 * 10


@pytest.mark.parametrize(("depth", "scale"), [(1000, 1.0), (1000, 0.001)])
@pytest.mark.parametrize("angle", [1e-6, 1e-4, 1e-2, 1.0, 3.1])
def test_deep_recursion_keeps_its_digits_near_equal_inputs(depth, scale, angle):
    there = infinite_resnet(torch.full((depth,), scale), 2)
    found = there.recursion(correlation_of_angle(torch.tensor([angle]))).ntk / there.at_equal_inputs().ntk
    with mp.workdps(40):
        _, expected = reference.resnet(mp.cos(mp.mpf(angle)), [mp.mpf(scale)] * depth, 2)
        expected /= 2 * depth * mp.mpf(scale) * (1 + mp.mpf(scale)) ** (depth - 1)
    assert abs(float(found) - float(expected)) < 1e-12  # the note: 7e-14 for a = 1e-3; the naive form loses 1e-5


@pytest.mark.parametrize("outer", [False, True])
def test_diagonal_in_closed_form(outer):
    there = limit(6, 3, 0.8, outer)
    a, scale = 0.8**3, there.log_scale.exp()
    nngp, ntk = (scale * kernel for kernel in there.at_equal_inputs())
    assert float(nngp) == pytest.approx((1 + a) ** 6, rel=1e-14)
    assert float(ntk) == pytest.approx(3 * 6 * a * (1 + a) ** 5 + 2 * outer * (1 + a) ** 6, rel=1e-14)
    recursion = kernels(there, correlation_of_cosine(torch.ones(1)))
    assert [float(k) for k in recursion] == pytest.approx([float(nngp), float(ntk)], rel=1e-14)


@pytest.mark.parametrize(("depth", "branch_depth", "a"), [(5, 2, 0.25), (20, 3, 0.1), (100, 2, 1.0)])
def test_slope_at_equal_inputs(depth, branch_depth, a):
    there, angle = infinite_resnet(torch.full((depth,), a), branch_depth), 1e-8
    ratio = there.recursion(correlation_of_angle(torch.tensor([angle]))).ntk / there.at_equal_inputs().ntk
    sigma = (branch_depth - 1) / (2 * math.pi) * (1 + (depth - 1) * a / (1 + a))
    # one digit of 1e-8 is 2e-16, the second-order term is (sigma * 1e-8)²
    assert (1 - float(ratio)) / angle == pytest.approx(sigma, rel=1e-6)


@pytest.mark.parametrize(
    ("branch_depth", "limits", "rates"),
    [
        (2, [4.292436141983, 2.391580242145, 1.048427070055, 0.257396729032], [-5.93, -3.28, -1.78, -0.92]),
        (3, [5.786832930873, 3.271410956621, 1.896399826270, 1.157029898713], None),
    ],
)
def test_depth_limit_with_scale_one_over_depth(branch_depth, limits, rates):
    depth = 2000
    there = infinite_resnet(torch.full((depth,), 1 / depth), branch_depth)
    _, ntk = kernels(there, correlation_of_cosine(torch.tensor([0.9, 0.5, 0.0, -0.5])))
    deviation = depth * (ntk - torch.tensor(limits))
    assert deviation.abs().max() < 30  # K_L − K_∞ = O(1/L)
    if rates is not None:
        torch.testing.assert_close(deviation, torch.tensor(rates), rtol=0.02, atol=0)


@pytest.mark.slow
def test_a_quarter_is_left_at_fixed_scale():
    there = infinite_resnet(torch.ones(10_000), 2)
    with torch.no_grad():
        ratio = there.recursion(correlation_of_angle(torch.tensor([0.1, 1.0]))).ntk / there.at_equal_inputs().ntk
    assert ratio.tolist() == pytest.approx([0.25475, 0.25062], abs=5e-6)  # the note prints five digits


def test_zero_scale_is_the_identity():
    there = infinite_resnet(torch.zeros(3), 2)
    nngp, ntk = kernels(there, correlation_of_cosine(torch.tensor([0.3])))
    assert float(nngp) == pytest.approx(0.3) and float(ntk) == 0
    assert there.stretch.opposite < 1e8


def test_gradient_by_the_scales_against_finite_differences():
    scales = torch.tensor([0.3, 0.8, 0.1], requires_grad=True)
    correlation = correlation_of_cosine(torch.tensor([0.99, 0.2, -0.7]))
    assert torch.autograd.gradcheck(lambda a: kernels(infinite_resnet(a, 3, True), correlation)[1], scales)
