"""The readings from a GPU that are kept, and what they say."""

import json

import pytest
import torch
from tools.kept_readings import collect, is_small, unpack

from skiplens.papers import reproduction
from skiplens.papers.reproduction import recorded_verdicts
from skiplens.readings.reading import Measurement
from skiplens.readings.store import Store
from tools import image_results

CIFAR = ("cifar10", "cifar100")


def test_what_is_kept_says_what_stands_there_on_a_machine_without_data_and_gpu(tmp_path, monkeypatch):
    """If not: python -m tools.image_results."""
    monkeypatch.setenv("SKIPLENS_CACHE", str(tmp_path))
    monkeypatch.delenv("SKIPLENS_DATA", raising=False)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    found = image_results.judged()
    kept = json.loads(image_results.PLACE.read_text("utf-8"))
    again = json.loads(json.dumps(image_results.entries(found)))
    for one, other in zip(again, kept, strict=True):
        for name in ("ours", "uncertainty"):
            wanted = other.pop(name)
            assert one.pop(name) == (wanted if wanted is None else pytest.approx(wanted, rel=1e-9))
        assert one == other
    drawn = [figure for result in found.results for figure in result.figures]
    assert {"cifar10_rate_0_1"} <= {figure.name for figure in drawn}
    assert not [result.problems for result in found.results if result.problems]
    reasons = {reason for result in found.results for reason in result.left_out}
    lacking = "{} is not on this machine; get it with: skiplens data get {}"
    every = {lacking.format(name, name) for name in CIFAR}  # of CIFAR-10 as long as some runs are missing
    assert lacking.format("cifar100", "cifar100") in reasons
    (other,) = reasons - every
    assert other.startswith("ImageNet is not on this machine")


def test_the_words_of_the_readings_are_in_the_record_and_another_one_raises_an_alarm(monkeypatch):
    """If not: python -m tools.image_results."""
    words = image_results.decided(image_results.judged())
    assert words and recorded_verdicts("paper") == words
    (name, word), *_ = words.items()
    other = "differs" if word == "opposite" else "opposite"
    monkeypatch.setattr(reproduction, "shipped_record", lambda: {"paper": {**words, name: other}})
    (alarm,) = image_results.judged().changed
    assert (alarm.name, alarm.verdict, alarm.recorded) == (name, word, other)


def test_an_archive_gains_readings_and_is_the_same_bytes_for_the_same_ones(tmp_path):
    archive = tmp_path / "readings.tar.xz"
    for number in range(2):
        reading = Measurement(name="m", arrays={"number": torch.tensor(number)})
        Store(tmp_path / f"sitting{number}/store").save(f"run-{number}", reading)
        collect([tmp_path / f"sitting{number}"], archive)
    unpack(archive, tmp_path / "all")
    store = Store(tmp_path / "all/store")
    assert [int(store.load(key)["number"]) for key in store.keys()] == [0, 1]
    before = archive.read_bytes()
    collect([tmp_path / "sitting1"], archive)
    assert archive.read_bytes() == before
    Store(tmp_path / "large/store").save("layer-0", Measurement(name="m", arrays={"number": torch.tensor(0)}))
    collect([tmp_path / "large"], tmp_path / "none.tar.xz", is_small)
    unpack(tmp_path / "none.tar.xz", tmp_path / "none")
    assert not list(tmp_path.glob("none/store/*"))
