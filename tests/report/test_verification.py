import math

import pytest
import scipy.stats
import torch

from skiplens.improvement.race import ends_of, signed_rank_p
from skiplens.readings.file import read_file, write_file
from skiplens.report.verification_reading import LAST_SHARE, VerificationReading


def verification(before: torch.Tensor, after: torch.Tensor, **changes) -> VerificationReading:
    words = {"rule": "signal_growth", "finding": "It grows.", "remedy": "scale_parameters", "quantity": "growth"}
    numbers = {"before": 100.0, "after": 2.0, "threshold": 20.0, "solved": True, "rates": (0.01, 0.1)}
    return VerificationReading(**(words | numbers | changes), losses_before=before, losses_after=after)


def runs(finals: list[float]) -> torch.Tensor:
    """Runs of eight steps whose last two have these losses."""
    return torch.cat([torch.full((len(finals), 6), 5.0), torch.tensor(finals)[:, None].expand(-1, 2)], 1)


def test_the_exact_test_agrees_with_scipy_where_there_are_no_ties(generator):
    for count in (5, 8, 11):
        differences = torch.randn(count, generator=generator) + 0.4
        expected = scipy.stats.wilcoxon(differences.numpy(), method="exact").pvalue
        assert signed_rank_p(differences) == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize(
    ("differences", "p"),
    [
        ([1.0, 2.0, 3.0, 4.0, 5.0], 2 / 2**5),
        ([-1.0, -2.0, -3.0, -4.0, -math.inf], 2 / 2**5),
        ([1.0, 1.0, 1.0], 2 / 2**3),
        ([1.0, -1.0], 1.0),
        ([0.0, 0.0], 1.0),
        ([0.0, 2.0, 3.0, -1.0], 4 / 2**3),
    ],
)
def test_p_values_counted_by_hand(differences, p):
    assert signed_rank_p(torch.tensor(differences)) == p


def test_the_final_loss_is_the_mean_of_the_last_quarter_and_infinite_after_a_divergence():
    losses = torch.tensor([[9.0, 9, 9, 9, 9, 9, 1, 3], [9.0, 9, 9, 9, 9, 9, 9, math.nan]])
    assert ends_of(losses, LAST_SHARE).tolist() == [2.0, math.inf]


@pytest.mark.parametrize(
    ("before", "after", "outcome", "wins"),
    [
        ([3.0] * 6, [1.0, 1.1, 1.2, 1.3, 1.4, 1.5], "helps", 6),
        ([1.0, 1.1, 1.2, 1.3, 1.4, 1.5], [3.0] * 6, "hurts", 0),
        ([1.0, 2.0, 3.0, 1.0, 2.0, 3.0], [2.0, 1.0, 3.5, 1.5, 1.0, 2.0], "no difference", 3),
        ([math.nan] * 6, [1.0] * 6, "helps", 6),
        ([math.nan] * 6, [math.nan] * 6, "no difference", 0),
        ([3.0] * 5, [1.0] * 5, "no difference", 5),  # five seeds cannot prove anything at 5 %: p ≥ 2/2⁵
    ],
)
def test_the_outcome_of_a_race(before, after, outcome, wins):
    reading = verification(runs(before), runs(after))
    assert (reading.outcome, reading.wins) == (outcome, wins)


def test_without_a_race_there_is_no_p_value():
    reading = verification(torch.zeros(0, 0), torch.zeros(0, 0))
    assert reading.outcome == "not raced" and math.isnan(reading.p_value)


def test_a_file_holds_it(tmp_path):
    reading = verification(runs([math.nan] * 2), runs([1.0] * 2), brought=("another",))
    write_file(tmp_path / "v", reading)
    again = read_file(tmp_path / "v")
    assert again.final_before.tolist() == [math.inf] * 2 and again.brought == ("another",)
