import json
from dataclasses import replace

import pytest
import torch

from skiplens.papers import study
from skiplens.sweeps.run import Needs
from tests.papers import small_study


@pytest.fixture(autouse=True)
def one_small_study(monkeypatch):
    monkeypatch.setattr(study, "MODULES", {"small": "tests.papers.small_study"})


@pytest.fixture
def here(tmp_path):
    return "--preset", "smoke", "--workers", "1", "--out", tmp_path / "out"


def test_studies_lists_every_item(ran):
    status, out, _ = ran("studies")
    assert status == 0 and "small/coin" in out and "A. Thrower 1900: On coins" in out
    status, out, _ = ran("studies", "--json")
    assert json.loads(out) == [{"item": "small/coin", "about": "a <coin>", "claims": 2}]


@pytest.mark.parametrize("target", [(), ("small",), ("small/coin",), ("all",)])
def test_reproduce_shows_verdicts_and_writes_the_gallery(ran, here, tmp_path, target):
    status, out, err = ran("reproduce", *target, *here)
    assert status == 0
    assert "small/coin/fair" in out and "reproduced" in out and "differs" in out and "index.html" in out
    assert "1 reproduced, 1 differs. The gallery is in" in out
    assert "8 of 8 runs done" in err
    assert (tmp_path / "out" / "index.html").exists()


@pytest.mark.parametrize(
    ("lacking", "reason"),
    [
        ({"lacks": "The coin is elsewhere."}, "The coin is elsewhere."),
        ({"needs": Needs(gpus=1)}, "This machine has no GPU for them."),
    ],
)
def test_runs_that_are_left_out_are_counted_with_their_reason(ran, here, monkeypatch, lacking, reason):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    (item,) = small_study.STUDY.items

    def runs(preset, seed):
        return [replace(run, **lacking) if run.settings.replicate > 4 else run for run in item.runs(preset, seed)]

    monkeypatch.setattr(small_study, "STUDY", replace(small_study.STUDY, items=(replace(item, runs=runs),)))
    status, _, err = ran("reproduce", "small", *here)
    assert status == 0 and "5 of 5 runs done" in err
    assert f"small/coin: runs left out: 3. {reason}" in err


def test_machines_get_json(ran, here):
    status, out, _ = ran("reproduce", "small", "--json", *here)
    assert status == 0
    assert [entry["verdict"] for entry in json.loads(out)] == ["reproduced", "differs"]


@pytest.mark.parametrize(
    ("word", "expected", "sentence"),
    [("reproduced", 1, "recorded is reproduced."), ("varies", 0, "its word changes between seeds.")],
)
def test_another_word_is_told_and_status_1_unless_it_is_known_to_vary(ran, here, tmp_path, word, expected, sentence):
    before = [{"study": "small", "item": "coin", "claim": "unfair", "verdict": word}]
    (tmp_path / "before.json").write_text(json.dumps(before))
    status, _, err = ran("reproduce", "small", "--recorded", tmp_path / "before.json", *here)
    assert status == expected
    assert f"small/coin/unfair is differs; {sentence}" in err


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["smal"], "There is no study 'smal'. Did you mean small"),
        (["small/coins"], "The study small has no item 'coins'. Did you mean coin"),
        (["small", "--preset", "huge"], "must be one of smoke, laptop, paper; got 'huge'"),
        (["small", "--workers", "0"], "workers must be at least 1, got 0"),
        (["small", "--workers", "2", "--scheduler", "tcp://127.0.0.1:1"], "not both"),
        (["small", "--recorded", "absent.json"], "absent.json does not hold verdicts"),
    ],
)
def test_bad_input_is_one_sentence_and_status_2(ran, tmp_path, words, message):
    status, out, err = ran("reproduce", *words, "--out", tmp_path / "out")
    assert status == 2
    assert err.startswith("error: ") and message in err and "Traceback" not in err and out == ""
    assert not (tmp_path / "out").exists()


def test_a_folder_of_another_preset_is_refused(ran, here, tmp_path):
    assert ran("reproduce", "small", *here)[0] == 0
    status, _, err = ran("reproduce", "small", "--workers", "1", "--out", tmp_path / "out")
    assert status == 2 and "holds runs of the preset 'smoke', and 'laptop' was asked for" in err


def test_an_unreachable_scheduler_is_status_2(ran, tmp_path):
    pytest.importorskip("distributed")
    words = ("--preset", "smoke", "--scheduler", "nonsense://x", "--out", tmp_path / "out")
    status, _, err = ran("reproduce", "small", *words)
    assert status == 2 and "No Dask scheduler answers at nonsense://x" in err
