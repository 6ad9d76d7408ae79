import torch

from skiplens.paths.report import RULES, idle_blocks
from tests.report.readings import at, paths, signal

(RULE,) = RULES


def test_branches_of_power_one_over_depth_are_deep_enough():
    """Binomial(L, 1/(L+1)) has mean L/(L+1): that of α^m = 1/L, which is what growth recommends."""
    energy = torch.distributions.Binomial(8, torch.tensor(1 / 9)).log_prob(torch.arange(9.0)).exp()
    assert RULE([paths(energy.tolist()), signal()]) == []


def test_a_shallow_network_is_noted_with_its_idle_blocks():
    contributions = torch.tensor([*[1e-6] * 3, *[0.02] * 5])
    (found,) = RULE([paths([1.0, 0.1, *[0.0] * 7], block_energy=contributions), signal()])
    assert found.severity == "note" and found.where == ("b0", "b1", "b2")
    assert "passes 0.091 of 8 branches" in found.sentence and "next to nothing: b0, b1, b2" in found.sentence
    assert abs(found.threshold - 4 / 9) < 1e-12


def test_most_blocks_lost_in_rounding_is_a_warning_unless_they_start_at_zero():
    lost = paths([1.0, *[0.0] * 8], block_energy=torch.full((8,), 1e-9))
    assert RULE([lost, signal()])[0].severity == "warning"
    assert RULE([lost, signal(zero_factors=torch.ones(8, dtype=torch.int64))])[0].severity == "note"
    half = signal(zero_factors=(at(8, 0, 1) + at(8, 1, 1) + at(8, 2, 1) + at(8, 3, 1)).long())
    assert RULE([lost, half])[0].severity == "note"


def test_without_statistics_or_values_nothing_is_said():
    shallow = paths([1.0, *[0.0] * 8])
    assert RULE([shallow, signal(fresh_norms=("bn",))]) == [] and RULE([shallow, signal(broken=("output",))]) == []
    assert RULE([paths([1.0]), signal(blocks=0, signal=torch.ones(0, 4), gradient=torch.ones(0, 4))]) == []


def test_idle_blocks_need_contributions():
    assert idle_blocks(paths([1.0, 1.0]), 0.5) == ()
