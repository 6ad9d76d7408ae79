"""Runs of image studies trained at once against the same runs alone, and what a sweep on a GPU leaves undone."""

import dataclasses
import importlib.util
import sys
from pathlib import Path

import pytest
import torch

from skiplens.graph.batch import Batch
from skiplens.papers.li2016_shortcuts import fig2_fig9
from skiplens.papers.li2016_shortcuts.study import STUDY as LI2016
from skiplens.papers.macdonald2023_regularity import images
from skiplens.papers.reproduction import ReproductionEffort, reproduce
from skiplens.papers.statistics import replicated
from skiplens.readings.store import Store
from skiplens.sweeps.run import perform

SMALL = {"data": "digits", "epochs": 2, "milestones": (1,), "images": 40, "test_images": 20, "side": 8, "width": 4}
PAIRS = images.ImageTraining(**SMALL, batch_size=16)
NETWORKS = fig2_fig9.ShortcutTraining(**SMALL, batch_size=16)


def script(name):
    """A script on the shelf beside the package."""
    place = Path(__file__).parents[2] / f"results/gpu/{name}.py"
    spec = importlib.util.spec_from_file_location(f"gpu_{name}", place)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


SCRIPT = script("sweep")
CASES = {
    "pairs": (
        SCRIPT.PAIRS,
        replicated(images.image_training, PAIRS, 2, 0, learning_rate=(0.1, 0.02), modified=(False, True)),
    ),
    "norms": (SCRIPT.NORMS, replicated(fig2_fig9.shortcut_training, NETWORKS, 2, 0, depth=(8, 14))),
}


@pytest.mark.parametrize("case", CASES)
def test_readings_are_those_of_the_runs_alone(case, tmp_path):
    """In float32: sums in another order are some ulp apart, and a few steps make little of that."""
    how, runs = CASES[case]
    store = Store(tmp_path)
    assert SCRIPT.run_side_by_side(runs, how, store)
    for run in runs:
        found, alone = store.load(run.key), perform(run).reading
        assert found.name == alone.name and found.provenance.settings == alone.provenance.settings
        assert found.arrays.keys() == alone.arrays.keys()
        for name, array in alone.arrays.items():
            torch.testing.assert_close(found[name], array, rtol=1e-4, atol=1e-5, equal_nan=True)
    assert not list(tmp_path.glob("unfinished/*"))


def test_a_network_is_tested_as_it_was_trained():
    """Autocast of bfloat16 moves the logits by rounding alone."""
    network = images.network_of(PAIRS).float()
    pictures = torch.rand(8, 3, 8, 8, dtype=torch.float32)
    found = SCRIPT.AsTrained(network)(pictures)
    assert found.dtype == torch.bfloat16
    torch.testing.assert_close(found.float(), network(pictures), rtol=0.1, atol=0.05)
    settings, test = dataclasses.replace(PAIRS, gpu=True), Batch(pictures, torch.arange(8))
    read = SCRIPT.PAIRS.read(settings, network, test, torch.zeros(2), torch.zeros(0))
    assert 0 <= float(read["accuracy"]) <= 1 and read["epoch_loss"].shape == (2,)


def test_what_was_stopped_goes_on_to_the_same_bits(tmp_path):
    how, runs = CASES["norms"]
    whole, stopped = Store(tmp_path / "whole"), Store(tmp_path / "stopped")
    SCRIPT.run_side_by_side(runs, how, whole)
    assert not SCRIPT.run_side_by_side(runs, how, stopped, stop=lambda left: True)
    assert not list(stopped.keys())
    assert SCRIPT.run_side_by_side(runs, how, stopped)
    for run in runs:
        for name, array in whole.load(run.key).arrays.items():
            assert torch.equal(stopped.load(run.key)[name].nan_to_num(), array.nan_to_num())


def test_a_reproduction_takes_what_the_store_has_and_does_not_ask_for_a_gpu(tmp_path, monkeypatch):
    """Two depths of figure 2 as a GPU left them, six replicates of one and three of the other; no data here."""
    monkeypatch.setenv("SKIPLENS_CACHE", str(tmp_path / "empty"))
    monkeypatch.delenv("SKIPLENS_DATA", raising=False)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    store, planned = Store(tmp_path / "out/store"), fig2_fig9.fig2_runs(fig2_fig9.SIZES["paper"], 0)
    assert all(run.lacks and run.needs.gpus == 1 for run in planned)
    _, (run, *_) = CASES["norms"]
    reading = perform(run).reading
    for one in planned:
        depth, replicate = one.settings.depth, one.settings.replicate
        if depth == 20 or (depth == 32 and replicate < 3):
            norm = torch.full((11,), 9.0 - 0.1 * depth + 1e-5 * replicate, dtype=torch.float64)
            said = dataclasses.replace(reading.provenance, settings=one.settings.to_json())
            arrays = {**reading.arrays, "norm": norm, "epoch_loss": norm}
            store.save(one.key, dataclasses.replace(reading, arrays=arrays, provenance=said))
    item = LI2016.item("fig2")
    found = reproduce([(LI2016, item)], tmp_path / "out", ReproductionEffort("paper"))
    words = {verdict.claim: (verdict.verdict, verdict.ours) for verdict in found.verdicts}
    assert words["after"] == ("reproduced", pytest.approx(-1.2)) and words["during"][0] == "reproduced"
    assert found.results[0].figures and not found.results[0].problems


def test_groups_are_whole_replicates_and_the_others_stay_the_same(tmp_path):
    _, runs = CASES["pairs"]
    first, second = SCRIPT.groups(runs, Store(tmp_path), 4)
    assert {run.settings.replicate for run in first} == {0} and {run.settings.replicate for run in second} == {1}
    reading = perform(first[0]).reading
    for run in first:
        Store(tmp_path).save(run.key, reading)
    assert SCRIPT.groups(runs, Store(tmp_path), 4) == [second]


def test_the_parts_of_the_sweep_are_all_runs_of_the_items_once():
    parts = [run.key for planned, _, _ in SCRIPT.PARTS.values() for run in planned("paper")]
    cifar10 = images.all_rates("cifar10", images.SIZES["paper"], 0)
    sizes = fig2_fig9.SIZES["paper"]
    wanted = [*cifar10, *fig2_fig9.fig2_runs(sizes, 0), *fig2_fig9.fig9_runs(sizes, 0)]
    assert len(parts) == len(set(parts)) and set(parts) == {run.key for run in wanted}


def test_shares_are_all_replicates_once_and_keep_pairs_together():
    runs = CASES["pairs"][1]
    shares = [SCRIPT.Share.read(f"{number}/2").its(runs) for number in (1, 2)]
    assert sorted(run.key for share in shares for run in share) == sorted(run.key for run in runs)
    assert [{run.settings.replicate for run in share} for share in shares] == [{0}, {1}]
    with pytest.raises(ValueError, match="3/2"):
        SCRIPT.Share.read("3/2")


def test_a_command_trains_its_share_alone(tmp_path, monkeypatch):
    how, runs = CASES["norms"]
    monkeypatch.setattr(SCRIPT, "PARTS", {"norms": (lambda preset: runs, how, 1)})
    SCRIPT.main(tmp_path, 10, preset="smoke", share=SCRIPT.Share(2, 2))
    store = Store(tmp_path / "store")
    assert [store.path(run.key).exists() for run in runs] == [run.settings.replicate == 1 for run in runs]


def test_a_command_may_be_asked_for_fewer_networks_at_once(tmp_path, monkeypatch, capsys):
    how, runs = CASES["norms"]
    monkeypatch.setattr(SCRIPT, "PARTS", {"norms": (lambda preset: runs, how, 10)})
    SCRIPT.main(tmp_path, 10, preset="smoke", most=1)
    assert capsys.readouterr().out.count("norms: 1 networks, ") == len(runs) > 1


def test_a_pace_stops_before_an_epoch_that_would_be_too_late(monkeypatch):
    now = iter([0.0, 20.0, 25.0, 30.0])  # the first epoch takes longer, its graph is recorded
    monkeypatch.setattr(SCRIPT.time, "monotonic", lambda: next(now))
    pace = SCRIPT.Pace(35.0)
    assert [pace(3), pace(2), pace(1)] == [True, False, True]
    assert pace.said(4) == "3 epochs in 30.0 s, 20000 images/s"


def test_a_sweep_goes_through_its_parts(tmp_path, monkeypatch, capsys):
    how, runs = CASES["norms"]
    monkeypatch.setattr(SCRIPT, "PARTS", {"tiny": (lambda preset: runs, how, 2)})
    SCRIPT.main(tmp_path, 60.0)
    assert set(Store(tmp_path / "store").keys()) == {run.key for run in runs}
    assert capsys.readouterr().out.count("tiny: 2 networks, 1 epochs in") == 2


def test_a_part_that_fails_says_where_and_the_next_one_begins(tmp_path, monkeypatch, capsys):
    how, runs = CASES["norms"]

    def fails(preset):
        return [dataclasses.replace(runs[0], settings=dataclasses.replace(runs[0].settings, depth=9))]

    parts = {"wrong": (fails, how, 2), "tiny": (lambda preset: runs[:2], how, 2)}
    monkeypatch.setattr(SCRIPT, "PARTS", parts)
    SCRIPT.main(tmp_path, 60.0)
    said = capsys.readouterr()
    assert "in network_of" in said.err and "A depth of 9 does not give three stages" in said.err
    assert "wrong: 1 networks failed without a graph" in said.out and "wrong: passed over" in said.out
    assert "tiny: 2 networks" in said.out and "all parts are through" in said.out
    assert set(Store(tmp_path / "store").keys()) == {run.key for run in runs[:2]}


def test_a_group_that_fails_is_tried_with_half_as_many_and_one_network_alone_is_passed_over(
    tmp_path, monkeypatch, capsys
):
    """Out of memory with more than two at once; one network never trains."""
    how, runs = CASES["norms"]
    train, tried, poison = SCRIPT.train_side_by_side, [], runs[1]
    monkeypatch.setattr(SCRIPT, "PARTS", {"tiny": (lambda preset: runs, how, 4)})

    def network_of_poison(network):
        state = fig2_fig9.network_of(poison.settings).float().state_dict()
        own = network.state_dict()
        return own.keys() == state.keys() and all(torch.equal(own[name], state[name]) for name in own)

    def fails(networks, data, recipes, **others):
        tried.append(len(networks))
        if len(networks) > 2:
            raise torch.OutOfMemoryError("out of memory")
        if any(network_of_poison(network) for network in networks):
            raise RuntimeError("never")
        return train(networks, data, recipes, **others)

    monkeypatch.setattr(SCRIPT, "train_side_by_side", fails)
    store = Store(tmp_path / "store")
    SCRIPT.main(tmp_path, 60.0)
    assert set(store.keys()) == {run.key for run in runs} - {poison.key}
    assert tried == [4, 2, 2, 1, 1, 1]  # half twice; of the second half one alone in both ways; then the last
    said = capsys.readouterr().out
    assert f"passed over {poison}" in said and "all parts are through" in said


def test_a_later_command_begins_with_what_worked(tmp_path, monkeypatch):
    monkeypatch.setattr(SCRIPT, "PARTS", {"tiny": (None, None, 8)})
    way = SCRIPT.kept_way(tmp_path, "tiny")
    found = []
    while way.humbler(way.at_once):
        SCRIPT.keep_way(tmp_path, "tiny", way)
        found.append((way.at_once, way.graph))
        assert SCRIPT.kept_way(tmp_path, "tiny") == way
    assert found == [(4, True), (2, True), (1, True), (1, False)]


def test_a_part_whose_networks_all_fail_is_given_up(tmp_path, monkeypatch, capsys):
    how, runs = CASES["pairs"]

    def fails(*_, **__):
        raise RuntimeError("never")

    monkeypatch.setattr(SCRIPT, "train_side_by_side", fails)
    monkeypatch.setattr(SCRIPT, "PARTS", {"tiny": (lambda preset: runs, how, 2)})
    SCRIPT.main(tmp_path, 60.0)
    said = capsys.readouterr().out
    assert said.count("passed over") == SCRIPT.MOST_PASSED_OVER < len(runs)
    assert "tiny: failed, the next part begins" in said


def test_a_rehearsal_trains_a_group_of_each_part_and_says_how_long_all_of_it_takes(monkeypatch, capsys):
    long = dataclasses.replace(NETWORKS, epochs=6, milestones=(3,), batch_size=128)
    runs = replicated(fig2_fig9.shortcut_training, long, 3, 0, depth=(8,))
    monkeypatch.setitem(sys.modules, "sweep", SCRIPT)
    rehearsal = script("rehearsal")
    monkeypatch.setattr(rehearsal, "PARTS", {"tiny": (lambda preset: runs, SCRIPT.NORMS, 2), "none": (None, None, 1)})
    rehearsal.main(["none", "tiny"], steps=1)
    said = capsys.readouterr()
    assert "none: rehearse failed" in said.out and "Traceback" in said.err
    same, times = (line for line in said.out.splitlines() if line.startswith("tiny"))
    assert same.count("[") == 2 and "tiny: 2 at once" in times and "The whole part: 2 groups" in times
