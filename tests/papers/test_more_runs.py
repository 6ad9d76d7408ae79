"""Claims decided by more runs than the laptop preset has."""

import json
from dataclasses import replace

import pytest
from tools.kept_readings import archive, unpack

from skiplens.papers.li2016_shortcuts.fig7_fig8 import final_losses
from skiplens.papers.li2016_shortcuts.learning_rates import fig8_runs
from skiplens.papers.statistics import MOST_CLAIMS
from skiplens.papers.study import study
from skiplens.readings.store import Store
from skiplens.sweeps.executor import ThisProcess
from skiplens.training.batched.plan import best_rate
from tools import more_runs


def kept() -> list[dict]:
    return json.loads(more_runs.PLACE.read_text("utf-8"))


def test_the_runs_are_those_of_the_laptop_but_for_their_number_seed_and_rates():
    composites = more_runs.MORE["composite"].runs
    assert len({run.key for run in composites}) == 100 and {run.settings.seed for run in composites} == {3}
    assert composites[0].settings.moments == (0, 5, 9) and composites[0].settings.images == 32
    for name, seed in (("two_shortcut", 4), ("deeper", 5), ("plain", 5)):
        for run in more_runs.MORE[name].runs:
            own = run.settings
            (laptop,) = [
                one.settings
                for one in fig8_runs("laptop", seed)
                if (one.settings.family, one.settings.depth) == (own.family, own.depth)
            ]
            assert replace(own, networks=laptop.networks, exponents=laptop.exponents) == laptop
            assert own.exponents == laptop.exponents[-len(own.exponents) :]  # the lowest rates are left out, if any
    half = [run.settings for run in more_runs.MORE["half"].runs]
    assert {(own.family, own.depth) for own in half} == {
        (run.settings.family, run.settings.depth) for run in more_runs.MORE["plain"].runs if run.settings.depth > 8
    }
    assert {own.seed for own in half if own.depth == 16} == {6}
    assert {own.seed for own in half if own.depth > 16} == {5}


def test_no_rate_that_was_left_out_could_have_been_the_best(tmp_path):
    """The one taken ends below the lowest that was tried, or below those left out in all that seed 4 has of them."""
    unpack(archive("more_runs"), tmp_path)
    store, looked_at = Store(tmp_path / "store"), 0
    for run in (run for name in ("deeper", "plain") for run in more_runs.MORE[name].runs):
        own = run.settings
        left_out = 9 - len(own.exponents)
        if not left_out:
            continue
        means = final_losses(store.load(run.key)).mean(1)
        taken = best_rate(means[:, None])
        below = means[:1]
        if taken == 0 or own.family == "2-shortcut":
            (pilot,) = more_runs.starts(own.family, {own.depth: (24, more_runs.EVERY_RATE)}, 4)
            means = final_losses(store.load(pilot.key)).mean(1)
            taken, below = taken + left_out, means[:left_out]
        assert float(below.min()) > 1.3 * float(means[taken]), run
        looked_at += 1
    assert looked_at == 10  # three depths of 2-shortcut stand in both


def test_what_is_kept_is_what_its_readings_say():
    """If not: python -m tools.more_runs."""
    entries = {(entry["study"], entry["item"], entry["claim"]): entry for entry in kept()}
    found = more_runs.kept()
    assert {one.claim for one in found} >= {"trend", "low"}
    for one in found:
        entry = dict(entries[one.study, one.item, one.claim])
        again = json.loads(json.dumps(one.to_json()))
        for name in ("ours", "uncertainty"):
            assert again.pop(name) == pytest.approx(entry.pop(name), rel=1e-9)
        assert again == entry


def test_looks_that_were_taken_again_are_paid_for():
    """A claim that is judged twice may miss twice: all intervals of a study, these too, fit under its level."""
    looks = {}
    for more in more_runs.MORE.values():
        looks[more.study] = looks.get(more.study, 0) + len(more.claims)
    looks["li2016_shortcuts"] += 2  # `deeper` was looked at with 24 starts of seed 4, `half_from_16` with seed 5, too
    for name, count in looks.items():
        assert sum(len(item.claims) for item in study(name).items) + count <= MOST_CLAIMS


def test_runs_are_done_once_and_what_they_say_stands_in_the_place_of_what_was_said(tmp_path, monkeypatch):
    tiny = [
        replace(run, settings=replace(run.settings, networks=3, epochs=2))
        for run in more_runs.MORE["two_shortcut"].runs[:2]
    ]
    more = more_runs.MORE["two_shortcut"]._replace(runs=tiny, claims=("deeper", "trend"))
    monkeypatch.setattr(more_runs, "MORE", {"tiny": more})
    monkeypatch.setattr(more_runs, "LocalWorkers", lambda count: ThisProcess())
    monkeypatch.setattr(more_runs, "archive", lambda shelf: tmp_path / "readings.tar.xz")
    found = more_runs.run(tmp_path / "out", ["tiny"])
    assert [one.claim for one in found] == ["deeper", "trend"] and found[0].explanation.endswith(more.said)
    assert [one.ours for one in more_runs.kept()] == [one.ours for one in found]
    monkeypatch.setattr("skiplens.sweeps.executor.perform", None)  # nothing is done again
    assert more_runs.run(tmp_path / "out", ["tiny"]) == found
    other = {"study": "s", "item": "i", "claim": "c", "ours": 1.0}
    old = {"study": more.study, "item": more.item, "claim": "deeper", "ours": 1.0}
    entries = more_runs.updated([old, other], found)
    assert [(entry["claim"], entry["ours"]) for entry in entries] == [
        ("deeper", found[0].ours),
        ("trend", found[1].ours),
        ("c", 1.0),
    ]
