"""Claims decided by more runs than the laptop preset has."""

import importlib.util
import json
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from skiplens.readings.store import Store
from skiplens.sweeps.executor import ThisProcess

PLACE = Path(__file__).parents[2] / "results/more_runs/run.py"


@pytest.fixture
def script():
    spec = importlib.util.spec_from_file_location("more_runs", PLACE)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_runs_are_those_of_the_laptop_but_for_their_number_and_seed(script):
    composites, starts = (script.MORE[name].runs for name in ("composite", "two_shortcut"))
    assert len({run.key for run in composites}) == 100 and {run.settings.seed for run in composites} == {3}
    assert composites[0].settings.moments == (0, 5, 9) and composites[0].settings.images == 32
    assert {(run.settings.family, run.settings.networks, run.settings.seed) for run in starts} == {
        ("2-shortcut", 24, 4)
    }
    assert [run.settings.depth for run in starts] == [4, 8, 16, 32, 64]
    assert {run.settings.samples for run in starts} == {1000} and {len(run.settings.exponents) for run in starts} == {9}


def test_what_is_kept_are_the_claims_of_the_runs(script):
    kept = {script._name(entry) for entry in json.loads(script.PLACE.read_text("utf-8"))}
    assert kept == {(more.study, more.item, claim) for more in script.MORE.values() for claim in more.claims}


def test_runs_are_done_once_and_their_verdicts_replace_those_that_were_there(script, tmp_path, monkeypatch, capsys):
    tiny = [replace(run, settings=replace(run.settings, networks=3, epochs=2)) for run in script.starts(3, 0)[:2]]
    more = script.MORE["two_shortcut"]._replace(runs=tiny, claims=("deeper", "trend"))
    other = {"study": "s", "item": "i", "claim": "c"}
    place = tmp_path / "verdicts.json"
    place.write_text(json.dumps([other]), "utf-8")
    monkeypatch.setattr(script, "MORE", {"tiny": more})
    monkeypatch.setattr(script, "PLACE", place)
    monkeypatch.setattr(script, "LocalWorkers", lambda count: ThisProcess())
    script.main(tmp_path / "out", ())
    first = json.loads(place.read_text("utf-8"))
    assert [entry["claim"] for entry in first] == ["deeper", "trend", "c"]
    assert first[0]["explanation"].endswith(more.said) and first[0]["ours"] is not None
    stored = SimpleNamespace(readings={run.key: Store(tmp_path / "out/store").load(run.key) for run in tiny})
    monkeypatch.setattr(script, "sweep", lambda runs, store, workers: stored)
    script.main(tmp_path / "out", ["tiny"])
    assert json.loads(place.read_text("utf-8")) == first
    assert capsys.readouterr().out.count("li2016_shortcuts/fig8/deeper: ") == 2
