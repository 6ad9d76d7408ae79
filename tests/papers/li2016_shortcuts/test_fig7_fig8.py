"""Figures 7 and 8: claims on grids that were made up so that the right verdict is known, and the smallest preset."""

import dataclasses

import pytest
import scipy.stats
import torch

from skiplens.papers.li2016_shortcuts import fig7_fig8
from skiplens.papers.li2016_shortcuts.fig7_fig8 import FIG7, FIG8, best_losses, best_rates, tables
from skiplens.papers.li2016_shortcuts.learning_rates import LinearGrid, fig7_runs, fig8_runs
from skiplens.papers.reproduction import ReproductionEffort, reproduce
from skiplens.papers.statistics import LEVEL
from skiplens.papers.study import choose
from skiplens.readings.reading import Measurement, Provenance

STARTS = 20


def grids(runs, losses_of):
    """Readings with log10 losses `losses_of(family, depth, exponents)` and a little noise."""
    generator = torch.Generator().manual_seed(0)
    readings = []
    for run in runs:
        own = dataclasses.replace(run.settings, networks=STARTS)
        logs = losses_of(own.family, own.depth, torch.tensor(own.exponents))
        noise = 0.01 * torch.randn(len(own.exponents), STARTS, generator=generator)
        values = torch.where(torch.isfinite(logs)[:, None], 10 ** (logs[:, None] + noise), torch.inf)
        arrays = {"losses": values}
        if isinstance(own, LinearGrid):
            small = values * 1e-6 if own.family == "3-shortcut" else values
            arrays = {"excess": values, "losses": 5.0 + small, "first_losses": torch.full((STARTS,), 5.0)}
        provenance = Provenance.begin(own.to_json(), 0, "cpu").end()
        readings.append(Measurement(name=run.measure, arrays=arrays, provenance=provenance))
    return readings


def valley(exponents, best, lowest, steepness=0.5):
    """Losses that rise away from the best rate, and divergence a decade above it."""
    logs = lowest + (exponents - best).abs() * steepness
    return torch.where(exponents > best + 1, torch.inf, logs)


def as_printed(family, depth, exponents):
    if family == "2-shortcut":
        return valley(exponents, 0.5, -6.5, steepness=2.5)
    if family == "xavier":
        return torch.where(exponents > -1, torch.inf, -0.85 + 0.01 * exponents)
    if family == "3-shortcut":
        return valley(exponents, -0.5, -3.0)
    rate = {4: -0.25, 8: -0.5, 16: -0.75, 32: -1.0, 64: -1.25, 96: -1.5}[depth]
    return valley(exponents, rate, -3.1)


def other_way_round(family, depth, exponents):
    if family == "2-shortcut":
        return valley(exponents, -1.0, -2.0)
    if family == "xavier":
        return valley(exponents, 0.0, -5.0)
    return valley(exponents, -2.0 + 0.02 * depth, -3.0)


def rectified_as_printed(family, depth, exponents):
    if family == "2-shortcut":
        return valley(exponents, 0.0, {4: -0.6, 8: -0.9, 16: -1.3, 32: -1.5, 64: -1.7}[depth])
    if depth == 64:
        return torch.full_like(exponents, torch.tensor(0.5).log10().item())
    return valley(exponents, 0.0, {4: -0.77, 8: -0.83, 16: -0.7, 32: -0.4}[depth])


def rectified_other_way_round(family, depth, exponents):
    return valley(exponents, -0.5, -1.0 + 0.001 * depth if family == "2-shortcut" else -1.2 - 0.001 * depth)


def verdicts(claims, readings):
    return {claim.name: claim.judge(readings).verdict for claim in claims}


def test_figure_7_as_it_is_printed():
    found = verdicts(FIG7, grids(fig7_runs("laptop", 0), as_printed))
    assert found.pop("equal_rate") == "opposite"
    assert set(found.values()) == {"reproduced"}, found


def test_figure_7_the_other_way_round():
    found = verdicts(FIG7, grids(fig7_runs("laptop", 0), other_way_round))
    assert {name for name, word in found.items() if word == "reproduced"} <= {"three_stay"}, found
    assert found["lowest"] == found["close_to_optimal"] == found["falling_rate"] == "differs"
    assert found["high_rate"] == "opposite"


def test_figure_7_with_lower_losses_at_equal_rates():
    def better_everywhere(family, depth, exponents):
        return as_printed(family, depth, exponents) - (9.0 if family == "2-shortcut" else 0.0)

    found = verdicts(FIG7, grids(fig7_runs("laptop", 0), better_everywhere))
    assert found["equal_rate"] == "reproduced"


def without_noise(readings):
    """Losses of exactly 1/2 where all networks are dead, as they are in float32."""
    for reading in readings:
        if reading.setting("depth") == 64 and reading.setting("family") != "2-shortcut":
            reading.arrays["losses"].fill_(0.5)
    return readings


def test_figure_8_as_it_is_printed():
    readings = without_noise(grids(fig8_runs("laptop", 0), rectified_as_printed))
    found = verdicts(FIG8, readings)
    assert set(found.values()) == {"reproduced"}, found


def test_figure_8_the_other_way_round():
    found = verdicts(FIG8, grids(fig8_runs("laptop", 0), rectified_other_way_round))
    assert "reproduced" not in found.values(), found
    assert (
        found["half"] == found["half_from_16"] == found["plain"] == found["turning_point"] == found["dead"] == "differs"
    )


def fewer(readings, starts):
    """Each depth with the first of its starts."""
    for reading in readings:
        kept = starts[reading.setting("depth")]
        reading.arrays["losses"] = reading.arrays["losses"][:, :kept]
    return readings


def test_every_depth_of_figure_8_may_have_starts_of_its_own():
    starts = {4: 20, 8: 12, 16: 20, 32: 8, 64: 5}
    readings = fewer(without_noise(grids(fig8_runs("laptop", 0), rectified_as_printed)), starts)
    named = {claim.name: claim for claim in FIG8}
    for name in ("deeper", "plain", "turning_point", "half", "half_from_16", "low"):
        assert named[name].judge(readings).verdict == "reproduced", name
    found = named["low"].judge(readings)  # the worse of the depths 32 and 64, each over its own starts
    (grid,) = [r for r in readings if (r.setting("family"), r.setting("depth")) == ("2-shortcut", 32)]
    losses = grid["losses"][6].log10()  # at the rate 1
    width = scipy.stats.t.ppf(1 - LEVEL / 4, 7) * losses.std() / 8**0.5  # two depths share the level
    assert found.ours == pytest.approx(float(losses.mean())) and found.uncertainty == pytest.approx(float(width))
    assert fig7_fig8.draw_fig8(readings)


@pytest.mark.parametrize(
    ("claims", "runs", "losses_of"),
    [
        (FIG7, fig7_runs, as_printed),
        (FIG8, fig8_runs, rectified_as_printed),
    ],
)
def test_claims_about_depths_that_a_preset_lacks_are_not_attempted(claims, runs, losses_of):
    readings = grids(runs("smoke", 0), losses_of)
    left_out = [judgement for claim in claims if (judgement := claim.judge(readings)).ours is None]
    assert left_out
    for judgement in left_out:
        assert judgement.verdict == "not attempted"
        assert "This preset has no networks as deep as that." in judgement.explanation


def test_the_best_of_a_grid():
    (run,) = [run for run in fig7_runs("smoke", 0) if (run.settings.family, run.settings.depth) == ("2-shortcut", 4)]
    (grid,) = grids([run], lambda family, depth, exponents: valley(exponents, 0.5, -9.5))
    assert bool((best_losses(grid) == -8.0).all())  # nearer counts as this near
    assert best_rates(grid).mean().item() == pytest.approx(0.5)


def test_pictures_and_tables_show_all_families():
    readings = grids(fig7_runs("laptop", 0), as_printed)
    losses, rates, grid = fig7_fig8.draw_fig7(readings)
    names = ["xavier", "orthogonal", "1-shortcut", "2-shortcut", "3-shortcut"]
    for figure in (losses, rates, grid):
        assert [mark.name for mark in figure.marks if mark.name] == names
    xavier = next(mark for mark in rates.marks if mark.name == "xavier")
    assert xavier.x == (4, 8, 16, 32, 64)  # its rates at depth 96 are left out, as in the paper
    (table,) = tables(readings)
    assert len(table.rows) == 30 * 21 * STARTS
    assert {"family", "depth", "learning_rate", "network", "final_loss"} <= set(table.rows[0])
    rectified = grids(fig8_runs("laptop", 0), rectified_as_printed)
    assert len(fig7_fig8.draw_fig8(rectified)) == 3


CERTAIN_AT_SMOKE = {
    "fig7": {"close_to_optimal", "lowest", "xavier", "high_rate", "falling_rate", "three_stay"},
    "fig8": {"deeper", "trend"},
}
"""What even the smallest preset reproduces, whatever the seed."""


@pytest.mark.parametrize("item", [pytest.param("fig7", marks=pytest.mark.slow), "fig8"])
def test_the_smallest_preset(item, tmp_path, seed):
    found = reproduce(choose(f"li2016_shortcuts/{item}"), tmp_path, ReproductionEffort("smoke", seed))
    (result,) = found.results
    assert not result.problems
    words = {verdict.claim: verdict.verdict for verdict in result.verdicts}
    assert {name for name in CERTAIN_AT_SMOKE[item] if words[name] != "reproduced"} == set(), words
    assert set(words.values()) <= {"reproduced", "not attempted"}
    assert len(result.figures) == 3 and len(result.tables) == 1


def test_grids_are_have_all_depths_and_rates():
    linear, rectified = fig7_runs("laptop", 0), fig8_runs("laptop", 0)
    assert len(linear) == 30 and len(rectified) == 15
    assert {len(run.settings.exponents) for run in linear} == {21}
    assert {len(run.settings.exponents) for run in rectified} == {9}
    assert {run.settings.depth for run in linear if run.settings.family == "3-shortcut"} == {6, 12, 18, 33, 66, 96}
    assert {run.settings.epochs for run in [*linear, *rectified]} == {1000}
    assert len({run.key for run in [*linear, *rectified, *fig7_runs("laptop", 1)]}) == 75
