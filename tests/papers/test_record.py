import json

import pytest

from skiplens.base.errors import InvalidInputError
from skiplens.sweeps.run import claim_folder
from tools import record_verdicts


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
    assert written["recorded.json"]["smoke"] == {"s/i/old": "differs", "s/i/a": "not attempted", "s/i/b": "corrected"}


def test_folders_of_two_presets_or_none_are_refused(tmp_path, written):
    folders = [folder(tmp_path / "one", "smoke"), folder(tmp_path / "two", "laptop")]
    for wrong in (folders, [tmp_path]):
        with pytest.raises(InvalidInputError, match="are not folders of skiplens reproduce with one preset"):
            record_verdicts.record(wrong)
    assert not written
