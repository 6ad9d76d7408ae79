import math

import pytest
import torch

from skiplens.report.lenses import find
from skiplens.signal.findings import allowed_growth, branch_factor
from tests.report.readings import signal

RATE = math.log(allowed_growth(8)) / 16  # the power of eight blocks grows by exactly what is allowed


def only(reading):
    (found,) = (found for found in find([reading]) if "growth" in found.rule)
    return found


@pytest.mark.parametrize(("factor", "fires"), [(0.99, False), (1.01, True)])
def test_the_threshold_of_the_signal_is_e_times_the_linear_law(factor, fires):
    assert any(found.rule == "signal_growth" for found in find([signal(rate=factor * RATE)])) == fires


def test_linear_growth_of_the_power_is_no_exponential():
    """Normalised branches: the power of L blocks is L + 1, whatever L."""
    for blocks in (4, 16, 64):
        power = torch.arange(1.0, blocks + 2)[:, None].expand(blocks + 1, 4)
        assert not find([signal(blocks, signal=power.sqrt(), gradient=power.flip(0).sqrt())])


def test_the_finding_says_rate_and_total():
    found = only(signal(rate=0.5))
    assert found.severity == "warning" and found.threshold == pytest.approx((math.e * 9) ** 0.5)
    assert found.number == pytest.approx(math.exp(4.0))
    assert "grows exponentially with depth: ×54.6 over all 8 blocks, by a factor 1.65 at each." in found.sentence
    assert "α = L^(−1/m) = 0.354" in found.change  # 8^(-1/2)


def test_growth_beyond_the_rounding_of_the_dtype_is_critical():
    rounding = math.log(2**23) / 16
    assert only(signal(rate=1.01 * rounding)).severity == "critical"
    assert only(signal(rate=0.99 * rounding)).severity == "warning"
    assert only(signal(rate=1.01 * rounding, precision="float64")).severity == "warning"


def test_fading_is_found_and_has_no_factor_that_helps():
    found = only(signal(rate=-0.5))
    assert "fades exponentially" in found.sentence and found.remedy is None and found.number < found.threshold


def test_the_gradient_is_told_where_the_signal_is_not():
    found = only(signal(back=0.5))
    assert found.rule == "gradient_growth" and "on its way back" in found.sentence
    assert only(signal(rate=0.5, back=0.5)).rule == "signal_growth"


def test_normalised_branches_may_amplify_the_gradient_up_to_rounding():
    assert not find([signal(back=0.5, normalised=(True,) * 8)])
    assert only(signal(back=2.1, normalised=(True,) * 8)).rule == "gradient_growth"


def test_batch_norms_without_statistics_make_it_a_note():
    found = only(signal(rate=0.5, fresh_norms=("bn",)))
    assert found.severity == "note" and found.remedy is None and "training mode" in found.change


def test_fewer_than_three_blocks_have_no_rate():
    assert not find([signal(blocks=2, rate=2.0)])


def test_an_uncertain_rate_is_not_told(generator):
    noisy = torch.exp(3 * torch.randn(9, 1, generator=generator)).expand(9, 4)
    assert not any("growth" in found.rule for found in find([signal(signal=noisy)]))


@pytest.mark.parametrize(("ratio", "cosine"), [(2.0, 0.0), (3.0, 0.5), (0.8, -0.3)])
def test_the_factor_leaves_a_growth_of_one_over_depth(ratio, cosine):
    """|x + fb|² = 1 + 2fρr + (fr)² is 1 + 1/8."""
    reading = signal(branch_norms=torch.full((8,), ratio), alignments=torch.full((8,), cosine))
    f = branch_factor(reading, 0)
    assert 1 + 2 * f * cosine * ratio + (f * ratio) ** 2 == pytest.approx(1 + 1 / 8)


def test_a_normalised_branch_is_measured_against_the_start_of_the_signal():
    shrunk = signal(branch_norms=torch.full((8,), 2.0), shortcut_norms=torch.full((8,), 50.0), normalised=(True,) * 8)
    assert branch_factor(shrunk, 0) == pytest.approx((1 / 8) ** 0.5 / 2)


def test_factors_go_to_large_branches_alone():
    ratios = torch.tensor([2.0, 0.1, *[2.0] * 6])
    factors = only(signal(rate=0.5, branch_norms=ratios)).remedy.parameters["factors"]
    assert "b0.1.weight" in factors and "b1.1.weight" not in factors
    assert factors["b0.1.weight"] == pytest.approx((1 / 8) ** 0.5 / 2, rel=1e-3)


def test_branches_that_cannot_be_scaled_leave_no_remedy():
    found = only(signal(rate=0.5, branch_norms=torch.full((8,), 2.0), output_parameters=((),) * 8))
    assert found.remedy is None and found.code == ""
