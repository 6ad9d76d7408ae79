"""Every item of the study except those that train on images: in tiny runs, and at the smallest preset."""

from dataclasses import fields, replace

import pytest

from skiplens.papers.macdonald2023_regularity import thm5_1
from skiplens.papers.reproduction import ReproductionEffort, reproduce
from skiplens.papers.study import choose

ITEMS = ["fig1", "fig2", "thm2_3", "thm4_5", "thm4_7", "thm5_1"]
ALL_ITEMS = {*ITEMS, "fig3", "fig4", "fig5", "table1", "table2", "fig6", "table3"}
UNDECIDED_AT_SMOKE = {
    *(f"fig2/{name}" for name in ("block1", "block2_projection", "block2_average_pool", "block2_isometric_pool")),
    *(f"fig2/{name}" for name in ("composite", "composite_at_start", "parameters")),
    *(f"fig2/{name}" for name in ("loss_residual", "loss_residual_later", "loss_average_pool")),
    "thm4_5/plain",
}
"""Too few seeds; everything else is decided by the smallest preset, whatever the seed."""

CORRECTED = {
    "fig2/pool",
    *(f"thm4_5/{name}" for name in ("activation", "batch_norm", "entry_curvature")),
    "thm4_7/first_layer",
    *(f"thm5_1/{name}" for name in ("any_start_logistic", "any_start_square", "infimum")),
    *(f"thm5_1/{name}" for name in ("printed_bound", "rate_exponent", "descent_constant")),
}


def test_no_item_of_the_paper_is_missing():
    assert {item.name for _, item in choose("macdonald2023_regularity")} == ALL_ITEMS


TINY = {
    "iterations": 3,
    "images": 3,
    "trials": 2,
    "moments": (0, 1),
    "looked_at": 1,
    "points": 1,
    "ascent": 1,
    "width": 20,
}


def tiny_runs(item, seed):
    """The item's runs with small settings, two replicates of each."""
    runs = [run for run in item.runs("smoke", seed) if run.settings.replicate < 2]
    for run in runs:
        known = {field.name for field in fields(run.settings)}
        yield replace(run, settings=replace(run.settings, **{name: TINY[name] for name in TINY if name in known}))


@pytest.mark.slow
def test_every_item_runs_with_tiny_settings(tmp_path, monkeypatch, seed):
    """From runs to verdicts, figures and tables; what the verdicts are is asked of the smallest preset below."""
    monkeypatch.setattr(thm5_1, "CHECKED", ("normalised_resnet",))
    chosen = [pair for name in ITEMS for pair in choose(f"macdonald2023_regularity/{name}")]
    small = [
        (study, replace(item, runs=lambda preset, seed, item=item: list(tiny_runs(item, seed))))
        for study, item in chosen
    ]
    found = reproduce(small, tmp_path, ReproductionEffort("smoke", seed))
    assert not [problem for result in found.results for problem in result.problems]
    assert all(result.figures and result.tables for result in found.results)
    assert [f"{verdict.item}/{verdict.claim}" for verdict in found.verdicts] == [
        f"{item.name}/{claim.name}" for _, item in chosen for claim in item.claims
    ]


@pytest.mark.slow
def test_every_item_runs_at_the_smallest_preset(tmp_path, seed):
    chosen = [pair for name in ITEMS for pair in choose(f"macdonald2023_regularity/{name}")]
    found = reproduce(chosen, tmp_path, ReproductionEffort("smoke", seed))
    assert not [problem for result in found.results for problem in result.problems]
    assert all(result.figures and result.tables for result in found.results)
    words = {f"{verdict.item}/{verdict.claim}": verdict.verdict for verdict in found.verdicts}
    assert {name for name, word in words.items() if word == "not attempted"} == UNDECIDED_AT_SMOKE
    assert {name for name, word in words.items() if word == "corrected"} == CORRECTED
    assert "differs" not in words.values()
    assert not found.changed
