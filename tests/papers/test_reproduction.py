"""Reproductions, what they write, and the record that they are compared with."""

import csv
import json
from dataclasses import replace

import pytest
import torch

from skiplens.base.errors import InvalidInputError
from skiplens.papers.reproduction import ReproductionEffort, recorded_verdicts, reproduce, write_folder
from skiplens.papers.statistics import Band, Interval, decide
from skiplens.papers.study import Claim, Judgement
from skiplens.report.gallery import shown_word
from skiplens.sweeps.run import claim_folder
from tests.papers.small_study import study
from tools import record_verdicts

CONTRACT = (
    "study",
    "item",
    "claim",
    "printed_at",
    "paper",
    "ours",
    "uncertainty",
    "tolerance",
    "verdict",
    "deviations",
)


@pytest.fixture
def reproduction(tmp_path):
    small = study()
    return reproduce([(small, small.items[0])], tmp_path, ReproductionEffort("smoke"))


def test_claims_get_their_verdicts(reproduction):
    assert [verdict.verdict for verdict in reproduction.verdicts] == ["reproduced", "differs"]
    assert reproduction.verdicts[0].ours == pytest.approx(0.5, abs=0.1)


def test_a_run_that_is_named_twice_counts_once(reproduction, tmp_path):
    assert len(reproduction.results[0].tables[0].rows) == 8 + 1


def test_the_folder_holds_what_is_promised(reproduction, tmp_path):
    page = write_folder(reproduction, tmp_path)
    assert page == tmp_path / "index.html"
    entries = json.loads((tmp_path / "verdicts.json").read_text())
    assert [entry["claim"] for entry in entries] == ["fair", "unfair"]
    assert all(set(CONTRACT) <= set(entry) for entry in entries)
    assert entries[0]["deviations"] == ["Our coin is not of gold."]
    rows = list(csv.DictReader((tmp_path / "tables/small_coin_heads.csv").read_text().splitlines()))
    assert len(rows) == 9 and rows[-1]["comment"] == "a, b" and rows[-1]["heads"] == ""
    assert {path.name for path in (tmp_path / "figures").iterdir()} == {"small_coin_heads.png", "small_coin_heads.svg"}
    environment = json.loads((tmp_path / "environment.json").read_text())
    assert environment["preset"] == "smoke" and "torch" in environment
    assert environment["cores"] >= 1 and environment["processor"]


def test_the_page_is_one_file_with_escaped_words(reproduction, tmp_path):
    text = write_folder(reproduction, tmp_path).read_text()
    assert "a &lt;coin&gt;" in text and "<coin>" not in text
    assert "Half of the throws are heads." in text and "Our coin is not of gold." in text
    assert 'class="word differs"' in text
    assert "Errata: page errata/none of the documentation." in text
    outside = text.split("<script>")[0]
    assert "http" not in outside.replace("http-equiv", "")


def test_failed_runs_make_verdicts_not_attempted_with_the_reason(tmp_path):
    small = study(broken=True)
    found = reproduce([(small, small.items[0])], tmp_path, ReproductionEffort("smoke"))
    assert {verdict.verdict for verdict in found.verdicts} == {"not attempted"}
    assert found.verdicts[0].explanation == "Runs failed: RuntimeError: the coin rolled away"
    assert found.results[0].problems == ("RuntimeError: the coin rolled away",)
    assert "the coin rolled away" in write_folder(found, tmp_path).read_text()


def test_another_preset_may_not_use_the_folder(reproduction, tmp_path):
    small = study()
    with pytest.raises(InvalidInputError, match="holds runs of the preset 'smoke'"):
        reproduce([(small, small.items[0])], tmp_path, ReproductionEffort("laptop"))


@pytest.mark.parametrize(
    ("recorded", "changed"),
    [
        ({"fair": "reproduced", "unfair": "differs"}, []),
        ({"fair": "reproduced", "unfair": "reproduced"}, ["small/coin/unfair"]),
        ({"fair": "not attempted"}, ["small/coin/fair"]),
        ({"fair": "varies", "unfair": "differs"}, ["small/coin/fair"]),
        ({}, []),
    ],
)
def test_verdicts_are_compared_with_the_recorded_ones(tmp_path, recorded, changed):
    file = tmp_path / "before.json"
    entries = [{"study": "small", "item": "coin", "claim": name, "verdict": word} for name, word in recorded.items()]
    file.write_text(json.dumps(entries))
    small = study()
    found = reproduce([(small, small.items[0])], tmp_path / "out", ReproductionEffort("smoke"), recorded=file)
    assert [verdict.name for verdict in found.changed] == changed


def test_without_its_data_an_item_has_not_changed(tmp_path):
    file = tmp_path / "before.json"
    file.write_text(json.dumps([{"study": "small", "item": "coin", "claim": "fair", "verdict": "reproduced"}]))
    small, lacking = study(), Claim("fair", "", "", "", lambda readings: Judgement("not attempted"))
    item = replace(small.items[0], runs=lambda *_: (), claims=(lacking,), figures=lambda _: (), tables=lambda _: ())
    found = reproduce([(small, item)], tmp_path / "out", ReproductionEffort("smoke"), recorded=file)
    assert [verdict.verdict for verdict in found.verdicts] == ["not attempted"] and found.changed == ()


@pytest.mark.parametrize("content", [None, "{", '[{"study": 1}]', "3"])
def test_a_record_that_is_none_is_told(tmp_path, content):
    if content is not None:
        (tmp_path / "verdicts.json").write_text(content)
    with pytest.raises(InvalidInputError, match=r"does not hold verdicts .* Give a verdicts.json"):
        recorded_verdicts("smoke", tmp_path / "verdicts.json")


@pytest.fixture
def written(monkeypatch):
    found = {}
    monkeypatch.setattr(
        record_verdicts, "write_content", lambda path, text: found.update({path.name: json.loads(text)})
    )
    before = {"smoke": {"s/i/old": "differs"}, "laptop": {"s/i/a": "differs"}}
    monkeypatch.setattr(record_verdicts, "shipped_record", lambda: before)
    return found


def folder(path, preset: str, **words: str):
    claim_folder(path, preset)
    entries = [{"study": "s", "item": "i", "claim": claim, "verdict": word} for claim, word in words.items()]
    (path / "verdicts.json").write_text(json.dumps(entries))
    return path


def test_verdicts_join_the_record(tmp_path, written):
    record_verdicts.record([folder(tmp_path / "one", "smoke", a="reproduced")])
    assert written["recorded.json"] == {
        "smoke": {"s/i/old": "differs", "s/i/a": "reproduced"},
        "laptop": {"s/i/a": "differs"},
    }


def test_seeds_that_disagree_decide_nothing(tmp_path, written):
    first = folder(tmp_path / "one", "smoke", a="reproduced", b="corrected")
    second = folder(tmp_path / "two", "smoke", a="not attempted", b="corrected")
    record_verdicts.record([first, second])
    assert written["recorded.json"]["smoke"] == {"s/i/old": "differs", "s/i/a": "varies", "s/i/b": "corrected"}


def test_folders_of_two_presets_or_none_are_refused(tmp_path, written):
    folders = [folder(tmp_path / "one", "smoke"), folder(tmp_path / "two", "laptop")]
    for wrong in (folders, [tmp_path]):
        with pytest.raises(InvalidInputError, match="are not folders of skiplens reproduce with one preset"):
            record_verdicts.record(wrong)
    assert not written


@pytest.mark.parametrize(
    ("judgement", "word"),
    [
        (decide(Interval(torch.tensor([1.0]), torch.tensor([0.3])), Band.around(1.0, 0.1), ""), "undecided"),
        (Judgement("not attempted", explanation="The data are not here."), "not run"),
        (Judgement("differs", 2.0), "differs"),
    ],
)
def test_what_ran_is_undecided_and_what_did_not_is_not_run(judgement, word):
    assert shown_word(judgement.verdict, judgement.ours) == word
