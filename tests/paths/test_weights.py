import math

import mpmath
import pytest
import torch

from skiplens.base.errors import InvalidInputError, TooLargeError
from skiplens.paths.weights import log_normaliser, log_path_weights, path_weights
from tests.paths import exact
from tests.tolerances import assert_close

RATIOS = [1e-9, 1e-3, 0.05, 0.3, 0.5, 1.0, 3.0, 50.0, 1e6]
TEN_LAYERS_HALF = [
    0.05853836546568066, 0.263422644595563, 0.5268452891911259, 0.6146528373896469, 0.4609896280422352,
    0.2304948140211176, 0.07683160467370586, 0.01646391528722268, 0.002057989410902836, 0.0001143327450501575,
]  # fmt: skip


@pytest.mark.parametrize("ratio", RATIOS)
@pytest.mark.parametrize("depth", [1, 2, 3, 7, 40, 150])
def test_logs_equal_exact_rationals(depth, ratio):
    terms = exact.terms(depth, ratio)
    expected = torch.tensor([exact.log(term, sum(terms)) / 2 for term in terms])
    error = (log_path_weights(depth, ratio) - expected).abs() / expected.abs().clamp(min=1)
    assert error.max() < 1e-13


@pytest.mark.parametrize("ratio", RATIOS)
@pytest.mark.parametrize("depth", [1, 2, 7, 150])
def test_normaliser_equals_exact_rationals(depth, ratio):
    expected = exact.log_normaliser(depth, ratio)
    assert log_normaliser(depth, ratio).item() == pytest.approx(
        expected, rel=1e-13, abs=1e-12
    )  # two logs are subtracted


def test_printed_values():
    five = [0.3650533180770203, 0.7301066361540406, 0.5475799771155305, 0.1825266590385102, 0.02281583237981377]
    assert_close(path_weights(5, 0.5), torch.tensor(five))
    assert_close(path_weights(10, 0.5), torch.tensor(TEN_LAYERS_HALF))
    assert_close(path_weights(10, 2.0), torch.tensor(TEN_LAYERS_HALF[::-1]))


@pytest.mark.parametrize(
    ("depth", "ratio", "square"),
    [
        (5, 0.3, 0.2468996649),
        (10, 0.5, 72.955632209777832),
        (10, 0.1, 0.01946816354668968101),
        (10, 2.0, 305998100),
        (10, 1.0, 48620),
        (100, 0.5, 1.1035261808106374e33),
    ],
)
def test_printed_normalisers(depth, ratio, square):
    assert 2 * log_normaliser(depth, ratio).item() == pytest.approx(math.log(square), abs=1e-10)


@pytest.mark.parametrize(
    ("ratio", "log_z", "at_1_50_100", "peak", "around_peak"),
    [
        (0.1, 5.976882482797133, (2.536722253200411e-4, 1.279666594320213e-24, 2.536722253200411e-103), 10,
         (0.4342890383202547, 0.4391144720793687, 0.3952030248714318)),
        (0.5, 38.04190937024212, (1.505146190603057e-17, 0.001348754200836812, 2.37470197281817e-47), 34,
         (0.3408016886043838, 0.3459653505529351, 0.335789899066084)),
        (2.0, 108.0497746067966, (2.37470197281817e-47, 6.74377100418406e-4, 1.505146190603057e-17), 67,
         (0.335789899066084, 0.3459653505529351, 0.3408016886043838)),
    ],
)  # fmt: skip
def test_printed_values_at_depth_100(ratio, log_z, at_1_50_100, peak, around_peak):
    epsilon = path_weights(100, ratio)
    assert log_normaliser(100, ratio).item() == pytest.approx(log_z, rel=1e-13)
    assert epsilon[[0, 49, 99]].tolist() == pytest.approx(at_1_50_100, rel=1e-12)
    assert epsilon[peak - 2 : peak + 1].tolist() == pytest.approx(around_peak, rel=1e-13)
    assert epsilon.argmax() + 1 == peak


def test_printed_sums_and_supports_at_depth_100():
    for ratio, total, first, last in [(0.1, 3.177962362286849, 3, 19), (0.5, 4.079560050761482, 21, 48)]:
        epsilon = path_weights(100, ratio)
        assert epsilon.sum().item() == pytest.approx(total, rel=1e-13)
        large = (epsilon > 0.01 * epsilon.max()).nonzero()[:, 0] + 1
        assert (large.min(), large.max()) == (first, last)


@pytest.mark.parametrize(
    ("depth", "ratio", "log_z", "mode", "largest"),
    [
        (1000, 0.1, 91.1763325978630, 91, 0.2489045386848636),
        (1000, 0.5, 402.383023500160, 334, 0.1945440111045187),
        (1000, 2.0, 1096.22335124067, 667, 0.1945440111045187),
        (100000, 0.1, 9525.73240350120, 9091, 0.07877802978466954),
        (100000, 0.5, 40542.2772324802, 33334, 0.06151990878708818),
        (100000, 2.0, 109857.688435655, 66667, 0.06151990878708818),
    ],
)
def test_printed_values_at_large_depth(depth, ratio, log_z, mode, largest):
    epsilon = path_weights(depth, ratio)
    assert log_normaliser(depth, ratio).item() == pytest.approx(log_z, rel=1e-14)
    assert epsilon.argmax() + 1 == mode
    assert epsilon.max().item() == pytest.approx(largest, rel=1e-14 * 10)


def test_a_million_layers_against_the_legendre_asymptotics_and_unit_norm():
    depth, ratios = 10**6, torch.tensor([0.1, 1.0, 7.0])
    for ratio in ratios:
        log_squares = 2 * log_path_weights(depth, ratio)
        assert torch.logsumexp(log_squares, 0).abs() < 1e-12
        q, beta = depth - 1, ratio.item()
        leading = (2 * q + 1) * math.log1p(beta) - math.log(2 * math.sqrt(math.pi * q * beta))
        # the next term of the expansion is of order 1/q with a coefficient below (1 + beta^2)/beta
        found = 2 * (log_normaliser(depth, ratio).item() - math.log(beta))
        assert abs(found - leading) < (1 + beta**2) / beta / q


def test_legendre_recursion_is_a_second_algorithm():
    depth, beta = 3000, torch.tensor([0.02, 0.7, 1.0, 1.3, 40.0])
    x, ratio = beta.square(), 1 + beta.square()
    log_sum = ratio.log()
    for k in range(1, depth - 1):
        ratio = ((2 * k + 1) * (1 + x) - k * (1 - x).square() / ratio) / (k + 1)
        log_sum = log_sum + ratio.log()
    assert_close(log_normaliser(depth, beta), beta.log() + log_sum / 2)


def test_reflection_reverses_the_weights():
    assert_close(path_weights(60, 0.25), path_weights(60, 4.0).flip(0), relative=1e-13)


def test_far_tails_stay_finite_in_logs():
    log_last = log_path_weights(5000, 0.5)[-1].item()
    q, beta = 4999, mpmath.mpf(0.5)
    square = sum(mpmath.binomial(q, j) ** 2 * beta ** (2 * j + 2) for j in range(5000))
    expected = 5000 * mpmath.log(beta) - mpmath.log(square) / 2
    assert log_last == pytest.approx(float(expected), rel=1e-14)


def test_many_ratios_at_once_and_chosen_lengths():
    ratios = torch.tensor([[0.1, 0.5], [2.0, 9.0]])
    lengths = torch.tensor([1, 30, 100, 101])
    together = path_weights(100, ratios, lengths)
    assert together.shape == (2, 2, 4)
    assert_close(together[1, 0, :3], path_weights(100, 2.0)[lengths[:3] - 1])
    assert (together[..., 3] == 0).all()


def test_weights_that_do_not_fit_say_what_to_do():
    with pytest.raises(TooLargeError, match=r"100000000 lengths for 1000000 depth ratios needs .* Pass lengths="):
        path_weights(10**8, torch.ones(10**6))


@pytest.mark.parametrize("ratio", [0.0, -1.0, math.nan, math.inf])
def test_depth_ratio_must_be_positive(ratio):
    with pytest.raises(InvalidInputError, match=r"depth ratio \(beta\) must be positive and finite; got .* BranchStat"):
        path_weights(10, ratio)


def test_one_bad_ratio_of_many_is_named():
    with pytest.raises(InvalidInputError, match="got -3"):
        path_weights(10, torch.tensor([1.0, -3.0]))


@pytest.mark.parametrize("depth", [0, -2])
def test_depth_must_be_at_least_one(depth):
    with pytest.raises(InvalidInputError, match=r"depth must be a whole number of layers, at least 1; got"):
        path_weights(depth, 0.5)
