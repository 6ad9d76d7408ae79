import math

import pytest
import torch

from skiplens.base.errors import InvalidInputError
from skiplens.paths.bands import band_rate, length_quantile, limit_fraction, log_energy_between, log_energy_outside
from skiplens.paths.weights import path_weights
from tests.paths import exact
from tests.tolerances import assert_close

OUTSIDE = [  # beta, depth, first, last, log10 of the energy outside, as printed in the theory note
    (0.1, 100, 8, 10, math.log10(0.4759575)),
    (0.1, 1000, 73, 109, math.log10(4.343721e-3)),
    (0.1, 10000, 728, 1090, math.log10(2.609487e-18)),
    (0.1, 100000, 7273, 10909, math.log10(9.136386e-167)),
    (0.5, 100, 27, 40, math.log10(0.03614904)),
    (0.5, 1000, 267, 400, math.log10(2.669670e-10)),
    (0.5, 10000, 2667, 4000, math.log10(8.931740e-87)),
    (0.5, 100000, 26667, 40000, -845.7888),
    (2.0, 100, 54, 80, math.log10(4.405252e-5)),
    (2.0, 1000, 534, 800, math.log10(2.113404e-35)),
    (2.0, 10000, 5334, 8000, -332.3106),
    (2.0, 100000, 53334, 80000, -3304.2040),
]


@pytest.mark.parametrize(("ratio", "depth", "first", "last", "log10"), OUTSIDE)
def test_printed_energy_outside_the_band(ratio, depth, first, last, log10):
    found = log_energy_outside(depth, ratio, first, last).item() / math.log(10)
    assert found == pytest.approx(log10, abs=1e-4 if log10 < -300 else 1e-6)  # seven printed digits, or four decimals


@pytest.mark.parametrize(
    ("depth", "ratio", "low", "high", "below", "above"),
    [
        (100, 0.5, 27, 39, 0.01140084486619313, 0.04741056145706672),
        (1000, 0.5, 267, 399, 3.485405813101651e-11, 4.168509251295561e-10),
        (1000, 2.0, 534, 799, 2.11337635823851e-35, 1.128126288249927e-39),
    ],
)
def test_printed_tails(depth, ratio, low, high, below, above):
    assert log_energy_between(depth, ratio, 1, low - 1).exp().item() == pytest.approx(below, rel=1e-12)
    assert log_energy_between(depth, ratio, high + 1, depth).exp().item() == pytest.approx(above, rel=1e-12)


@pytest.mark.parametrize("ratio", [1e-6, 0.02, 0.4, 1.0, 30.0])
@pytest.mark.parametrize("depth", [1, 2, 12, 80])
def test_every_band_equals_exact_rationals(depth, ratio):
    terms = exact.terms(depth, ratio)
    ends = sorted({1, 2, depth // 3, depth // 2, depth - 1, depth} - {0})
    for first in ends:
        for last in ends:
            band = sum(terms[first - 1 : last])
            found = log_energy_between(depth, ratio, first, last).item()
            if band:
                assert found == pytest.approx(exact.log(band, sum(terms)), rel=1e-12, abs=1e-13)
            else:
                assert found == -math.inf


def test_mass_within_two_deviations():
    for ratio, mass, mean, variance in [
        (0.1, 0.9511703352533846, 9.792173619818361, 4.113335799333368),
        (0.5, 0.9503697298609413, 33.91618955158821, 11.05595499909358),
    ]:
        reach = 2 * math.sqrt(variance)
        first, last = math.ceil(mean - reach), math.floor(mean + reach)
        assert log_energy_between(100, ratio, first, last).exp().item() == pytest.approx(mass, rel=1e-13)


def test_rate_is_approached_as_printed():
    printed = {0.1: (2.7195e-3, 2.0244e-3, 1.9116e-3), 0.5: (1.1022e-2, 9.9068e-3, 9.7375e-3)}
    least = {0.1: 1.8908e-3, 0.5: 9.7123e-3}
    for ratio, rates in printed.items():
        a = limit_fraction(ratio).item()
        assert band_rate(ratio, 0.8 * a, 1.2 * a).item() / 2 == pytest.approx(least[ratio], abs=5e-8)
        for (_, depth, first, last, _), rate in zip([o for o in OUTSIDE if o[0] == ratio][1:], rates, strict=True):
            found = -log_energy_outside(depth, ratio, first, last).item() / (2 * depth)
            assert found == pytest.approx(rate, abs=6e-8 if rate < 1e-2 else 6e-7)


@pytest.mark.parametrize("level", [1e-6, 0.1, 0.5, 0.9, 0.999])
def test_quantiles_equal_a_cumulative_sum(level):
    ratios = torch.tensor([0.01, 0.3, 1.0, 8.0])
    cumulative = path_weights(500, ratios).square().cumsum(1)
    expected = (cumulative < level).sum(1) + 1
    assert length_quantile(500, ratios, level).tolist() == expected.tolist()


def test_many_ratios_are_worked_off_in_pieces(monkeypatch):
    from skiplens.paths import bands

    ratios = torch.logspace(-2, 2, 37)
    whole = log_energy_between(400, ratios, 201, 400)
    monkeypatch.setattr(bands, "_ENTRIES_AT_ONCE", 500)
    assert_close(log_energy_between(400, ratios, 201, 400), whole)
    assert length_quantile(400, ratios.reshape(1, -1), 0.5).shape == (1, 37)


def test_bad_bands():
    with pytest.raises(InvalidInputError, match="A band needs first <= last; got first=5, last=4"):
        log_energy_outside(10, 0.5, 5, 4)
    with pytest.raises(InvalidInputError, match="level of a quantile must lie strictly between 0 and 1; got 1"):
        length_quantile(10, 0.5, 1.0)
    with pytest.raises(InvalidInputError, match=r"band must satisfy 0 < lowest < beta/\(1\+beta\) < highest < 1"):
        band_rate(0.5, 0.4, 0.5)
