"""Repeated runs, their readings, intervals and verdicts."""

import math

import pytest
import scipy.stats
import torch

from skiplens.base.errors import InvalidInputError
from skiplens.base.settings import option
from skiplens.papers.reproduction import csv_text
from skiplens.papers.statistics import (
    LEVEL,
    MOST_CLAIMS,
    STUDY_LEVEL,
    Band,
    Interval,
    ReplicateSettings,
    against,
    chosen,
    curve,
    decide,
    decide_correction,
    entries,
    exactly,
    exponent,
    over_seeds,
    over_trials,
    raw_tables,
    replicated,
    slope,
    stacked,
    values,
)
from skiplens.papers.study import studies
from skiplens.readings.reading import Measurement, Provenance


def interval(value: float, half_width: float) -> Interval:
    return Interval(torch.tensor(value), torch.tensor(half_width))


def test_an_interval_is_students():
    values = [1.0, 2.0, 4.0, 5.0]
    found = over_seeds(values)
    expected = scipy.stats.t.interval(1 - LEVEL, 3, loc=3.0, scale=scipy.stats.sem(values))
    assert (float(found.low), float(found.high)) == pytest.approx(expected)


def test_many_numbers_share_the_chance_of_a_miss(generator):
    """With a level of 1e-4 in all, 2000 experiments of 50 numbers each miss at most a few times."""
    draws = torch.randn(2000, 6, 50, generator=generator)
    missed = sum(bool((over_seeds(one).value.abs() > over_seeds(one).half_width).any()) for one in draws)
    assert missed <= scipy.stats.poisson.ppf(1 - 1e-6, 2000 * LEVEL)
    alone, together = over_seeds(draws[0][:, 0]), over_seeds(draws[0])
    assert together.half_width[0] > alone.half_width


def test_numbers_elsewhere_may_share_the_chance_too(generator):
    draws = torch.randn(8, 3, generator=generator)
    apart = torch.stack([over_seeds(column, comparisons=3).half_width for column in draws.T])
    assert torch.allclose(apart, over_seeds(draws).half_width)


def test_a_closed_form_has_no_uncertainty():
    found = exactly([0.5, 2.0])
    assert found.low.tolist() == found.high.tolist() == [0.5, 2.0]
    assert decide(exactly(1.0), Band(1.0, 1.0), "").verdict == "reproduced"
    assert decide(exactly(1.0 + 1e-12), Band(1.0, 1.0), "").verdict == "differs"


def test_one_seed_is_no_interval():
    with pytest.raises(InvalidInputError, match="needs at least 2 seeds, got 1"):
        over_seeds([1.0])


def test_all_claims_of_a_study_hold_together():
    assert LEVEL * MOST_CLAIMS == pytest.approx(STUDY_LEVEL)
    for study in studies():
        assert sum(len(item.claims) for item in study.items) <= MOST_CLAIMS, study.name


@pytest.mark.parametrize(("count", "trials"), [(0, 3), (6, 10), (10, 10), (1, 40)])
def test_the_share_of_trials_has_an_exact_interval(count, trials):
    """At its ends what was counted, or more extreme, has half the chance of a miss; the sums are of binomial terms."""
    found = over_trials([True] * count + [False] * (trials - count))
    assert float(found.value) == pytest.approx(count / trials)

    def chance(share, counts):
        return sum(math.comb(trials, k) * share**k * (1 - share) ** (trials - k) for k in counts)

    ends = []
    if count:
        ends.append((max(0.0, float(found.low)), range(count, trials + 1)))
    if count < trials:
        ends.append((min(1.0, float(found.high)), range(count + 1)))
    chances = [chance(end, counts) for end, counts in ends]
    assert max(chances) == pytest.approx(LEVEL / 2, rel=1e-6), "the longer side is exact"
    assert all(one <= LEVEL / 2 * (1 + 1e-6) for one in chances)


def test_one_trial_is_no_share():
    with pytest.raises(InvalidInputError, match="needs at least 2 trials, got 1"):
        over_trials([True])


@pytest.mark.parametrize(
    ("values", "band", "word"),
    [
        ([-1.0], Band(0.0, math.inf), "opposite"),
        ([1.0], Band(-math.inf, 0.0), "opposite"),
        ([-1.0, -2.0], Band(0.0, math.inf), "opposite"),
        ([-1.0, 2.0], Band(0.0, math.inf), "differs"),  # one of two has the other sign: not the contrary of both
        ([0.5], Band(1.0, math.inf), "differs"),  # short of what we ask for, but of the printed sign
        ([-1.0], Band(0.0, 1.0), "differs"),
        ([-1.0], Band(-0.2, math.inf, 0.2), "differs"),
    ],
)
def test_the_opposite_is_the_other_sign(values, band, word):
    found = Interval(torch.tensor(values), torch.full((len(values),), 0.1))
    assert decide(found, band, "Compared.").verdict == word


@pytest.mark.parametrize(
    ("right", "word"),
    [
        (Band(0.0, math.inf), "opposite"),  # nothing but the contrary
        (Band.around(1.0, 0.2), "corrected"),  # a number of its own
    ],
)
def test_a_contrary_is_no_correction(right, word):
    found, other = interval(1.0, 0.1), interval(1.0, 0.1)
    assert decide_correction((found, Band(-math.inf, 0.0)), (found, right), "Compared.").verdict == word
    assert decide_correction((found, Band(-math.inf, 0.0)), (other, right), "Compared.").verdict == "corrected"


@pytest.mark.parametrize(
    ("value", "half_width", "word"),
    [
        (1.0, 0.05, "reproduced"),
        (1.04, 0.05, "reproduced"),
        (1.2, 0.05, "differs"),
        (1.08, 0.05, "not attempted"),
        (1.0, 0.3, "not attempted"),
    ],
)
def test_an_interval_decides_only_if_it_lies_on_one_side(value, half_width, word):
    judgement = decide(interval(value, half_width), Band.around(1.0, 0.1), "Compared.")
    assert judgement.verdict == word
    assert (judgement.ours, judgement.uncertainty, judgement.tolerance) == pytest.approx((value, half_width, 0.1))
    assert ("too wide to decide" in judgement.explanation) == (word == "not attempted")


@pytest.mark.parametrize(
    ("value", "half_width", "word"),
    [
        (1.0, 0.05, "reproduced"),
        (2.0, 0.05, "corrected"),
        (3.0, 0.05, "differs"),
        (1.1, 0.05, "not attempted"),
        (2.1, 0.05, "not attempted"),
    ],
)
def test_a_correction_needs_the_printed_one_rejected_and_the_right_one_held(value, half_width, word):
    found = interval(value, half_width)
    printed, right = (found, Band.around(1.0, 0.1)), (found, Band.around(2.0, 0.1))
    assert decide_correction(printed, right, "Compared.").verdict == word


def test_the_worst_of_many_is_reported():
    found = Interval(torch.tensor([0.0, 0.5, -0.1]), torch.tensor([0.1, 0.1, 0.1]))
    judgement = decide(found, Band.around(0.0, 0.2), "Compared.")
    assert judgement.verdict == "differs" and judgement.ours == pytest.approx(0.5)


def test_one_of_many_inside_does_not_make_them_all():
    found = Interval(torch.tensor([0.0, 0.19]), torch.tensor([0.1, 0.1]))
    assert decide(found, Band.around(0.0, 0.2), "Compared.").verdict == "not attempted"


def test_a_bound_has_one_side_and_may_be_lenient():
    assert decide(interval(-9.0, 1.0), Band(-math.inf, 0.0), "Compared.").verdict == "reproduced"
    assert Band.between(1.0, 2.0, 0.1) == Band(0.9, 2.1, 0.1)


def test_slopes_are_those_of_lines():
    x = [1.0, 2.0, 4.0]
    y = torch.tensor([[3.0, 5.0, 9.0], [0.0, -1.0, -3.0]])
    assert slope(x, y).tolist() == pytest.approx([2.0, -1.0])


class Probe(ReplicateSettings):
    depth: int = option(1, "layers")


def weigh(probe: Probe) -> dict[str, torch.Tensor]:
    return {"x": torch.tensor([float(probe.depth)])}


def test_every_combination_is_repeated_and_replicates_are_neighbours():
    runs = replicated(weigh, Probe(), 2, 7, cost=lambda probe: float(probe.depth), depth=(3, 5))
    assert {run.measure for run in runs} == {f"{__name__}:weigh"}
    assert [(run.settings.depth, run.settings.replicate, run.settings.seed) for run in runs] == [
        (3, 0, 7),
        (3, 1, 7),
        (5, 0, 7),
        (5, 1, 7),
    ]
    assert [run.cost for run in runs] == [3, 3, 5, 5]
    assert len({run.key for run in runs}) == 4


def test_the_settings_name_the_stream():
    def draw(**settings: int) -> torch.Tensor:
        return torch.randn(3, generator=Probe(**settings).stream())

    assert torch.equal(draw(), draw())
    for other in ({"replicate": 1}, {"seed": 1}, {"depth": 2}):
        assert not torch.equal(draw(), draw(**other))


def test_runs_of_a_replicate_share_named_streams():
    def draw(name: str, **settings: int) -> torch.Tensor:
        return torch.randn(3, generator=Probe(**settings).shared_stream(name))

    assert torch.equal(draw("data"), draw("data", depth=2))
    for other in ({"replicate": 1}, {"seed": 1}):
        assert not torch.equal(draw("data"), draw("data", **other))
    assert not torch.equal(draw("data"), draw("signs"))


def measurement(measure: str, number: float, **settings: object) -> Measurement:
    return Measurement(
        name=f"somewhere:{measure}", arrays={"x": torch.tensor([number])}, provenance=Provenance(settings=settings)
    )


@pytest.fixture
def readings() -> list[Measurement]:
    return [
        measurement("weigh", 1.0, depth=20, replicate=0),
        measurement("weigh", 2.0, depth=20, replicate=1),
        measurement("weigh", 3.0, depth=5, replicate=0),
        measurement("count", 4.0, width=7),
    ]


def test_readings_by_measure_and_settings(readings):
    assert len(chosen(readings)) == 4
    assert [float(one["x"]) for one in chosen(readings, "weigh", depth=20)] == [1.0, 2.0]
    assert chosen(readings, weigh, depth=20) == chosen(readings, "weigh", depth=20)
    assert stacked(readings, "x", "weigh", replicate=0).tolist() == [[1.0], [3.0]]
    assert values(readings, "depth", "weigh") == [5, 20]


def test_an_array_against_a_setting(readings):
    depths, found = against([*readings, measurement("weigh", 5.0, depth=5, replicate=1)], "x", "depth", "weigh")
    assert depths == [5, 20]
    assert found[..., 0].tolist() == [[3.0, 1.0], [5.0, 2.0]]


def test_nothing_chosen_is_told(readings):
    with pytest.raises(InvalidInputError, match=r"No run of weigh has {'depth': 6}; the item's runs lack it"):
        chosen(readings, "weigh", depth=6)


def reading(name: str, settings: dict, **arrays: torch.Tensor) -> Measurement:
    return Measurement(name=f"package.module:{name}", arrays=arrays, provenance=Provenance.begin(settings, 0).end())


def test_one_row_for_each_place_and_numbers_are_repeated():
    found = entries(
        reading("norms", {}, epoch=torch.tensor([0, 5]), norm=torch.tensor([1.0, 2.0]), depth=torch.tensor(3))
    )
    assert found == [{"epoch": 0, "norm": 1.0, "depth": 3}, {"epoch": 5, "norm": 2.0, "depth": 3}]


def test_further_axes_become_columns():
    found = entries(reading("weights", {}, W=torch.arange(4.0).reshape(2, 2)))
    assert found == [{"W_0": 0.0, "W_1": 1.0}, {"W_0": 2.0, "W_1": 3.0}]


def test_single_numbers_make_one_row():
    assert entries(reading("error", {}, error=torch.tensor(0.5))) == [{"error": 0.5}]


def test_one_table_for_each_measure_with_the_settings_of_its_runs():
    readings = [
        reading("a", {"depth": 2}, value=torch.tensor([1.0, 2.0])),
        reading("b", {"width": 7}, other=torch.tensor(3.0)),
        reading("a", {"depth": 4}, value=torch.tensor([5.0])),
    ]
    first, second = raw_tables(readings)
    assert (first.name, second.name) == ("a", "b")
    assert csv_text(first) == "depth,index,value\n2,0,1.0\n2,1,2.0\n4,0,5.0\n"
    assert csv_text(second) == "width,index,other\n7,0,3.0\n"


def test_a_curve_is_the_mean_with_a_band_of_one_deviation():
    band, line = curve((1, 2), torch.tensor([[1.0, 2.0], [3.0, 2.0]]), "both", 0)
    assert line.y == (2.0, 2.0) and line.name == "both"
    assert band.low == pytest.approx((2 - 2**0.5, 2.0), rel=1e-14)
    assert band.high == pytest.approx((2 + 2**0.5, 2.0), rel=1e-14)


def test_a_place_that_a_replicate_did_not_reach_counts_for_the_others():
    _, line = curve((1, 2), torch.tensor([[1.0, torch.nan], [3.0, 5.0]]), "one", 1)
    assert line.y == (2.0, 5.0)


def test_the_exponent_of_a_power_law():
    x = (1, 2, 5, 30)
    rows = torch.stack([3 * torch.tensor(x).double() ** power for power in (-1.5, 0.0, 2.0)])
    torch.testing.assert_close(exponent(x, rows), torch.tensor([-1.5, 0.0, 2.0]).double())
