import base64
import gzip
import hashlib
import json
import re
from importlib.resources import files

import pytest
import torch

from skiplens.base.errors import InvalidInputError, SkiplensError
from skiplens.readings.file import from_json, to_json
from skiplens.report.inspection import Problem, Report
from skiplens.signal.structure import StructureReading, structure_sentence
from tests.readings.test_file import example
from tests.sample_readings import structure

HOSTILE = "</script><img src=x onerror=alert(1)>'\"&"


def report(**changes) -> Report:
    return Report("Net", (structure(**changes),), (Problem("paths", "this model cannot be measured"),))


def test_the_folder_holds_page_readings_and_figures(tmp_path):
    page = report().write(tmp_path / "out")
    assert page == tmp_path / "out" / "report.html"
    assert sorted(p.name for p in (tmp_path / "out").iterdir()) == [
        "card.png",
        "figures",
        "readings.json",
        "report.html",
    ]
    assert {p.suffix for p in (tmp_path / "out" / "figures").iterdir()} == {".png", ".svg"}
    assert json.loads((tmp_path / "out" / "readings.json").read_text())["readings"][0]["kind"] == "structure"


def test_the_page_is_self_contained(tmp_path):
    text = report().save(tmp_path / "report.html").read_text()
    assert not re.search(r"""(src|href)\s*=\s*["']?(https?:)?//""", text)
    assert "default-src 'none'" in text


def test_plotly_is_packed_as_its_notice_says(tmp_path):
    text = report().save(tmp_path / "report.html").read_text()
    (packed,) = re.findall(r'<script type="application/octet-stream" id="plotly">(.*?)</script>', text)
    library = gzip.decompress(base64.b85decode(packed.translate(str.maketrans(",.:", "&<>"))))
    notice = files("skiplens.report").joinpath("templates", "PLOTLY.md").read_text("utf-8")
    assert hashlib.sha256(library).hexdigest() in notice
    assert len(text) < len(library) / 2


def test_every_word_of_a_model_is_escaped(tmp_path):
    hostile = structure(model=HOSTILE, block_names=(HOSTILE, "b"), notes=(HOSTILE,))
    text = Report(HOSTILE, (hostile,), (Problem(HOSTILE, HOSTILE),)).save(tmp_path / "r.html").read_text()
    assert "<img" not in text
    assert text.count("</script>") == text.count("<script")


def test_a_report_is_read_back_as_it_was_written(tmp_path):
    first = report(branch_depths=torch.tensor([2, 3]))
    first.write(tmp_path)
    again = Report.load(tmp_path)
    assert again.to_json() == first.to_json()
    assert torch.equal(again.reading(StructureReading).branch_depths, torch.tensor([2, 3]))
    assert again.save(tmp_path / "again.html").read_text() == (tmp_path / "report.html").read_text()


def test_numbers_that_json_lacks_survive():
    reading = example(energy=torch.tensor([float("nan"), float("inf"), -1.5]), depth=float("-inf"))
    back = from_json(json.loads(json.dumps(to_json(reading), allow_nan=False)))
    assert back.energy[0].isnan() and back.energy[1].isinf() and back.energy[2] == -1.5
    assert back.depth == float("-inf")
    assert torch.equal(back.by_block["../x"], reading.by_block["../x"]) and back.by_block["../x"].dtype == torch.bool


@pytest.mark.parametrize("content", ["", "{}", '{"readings": [{"kind": "x"}], "title": "", "problems": []}', "[1]"])
def test_a_foreign_file_is_named(tmp_path, content):
    (tmp_path / "readings.json").write_text(content)
    with pytest.raises(InvalidInputError, match=r"readings\.json does not hold the readings of a report"):
        Report.load(tmp_path)


def test_a_folder_is_no_file_name(tmp_path):
    with pytest.raises(InvalidInputError, match="is a folder; name the file"):
        report().save(tmp_path)


def test_an_unwritable_folder_is_named(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(SkiplensError, match="Could not write"):
        report().write(tmp_path / "file")


@pytest.mark.parametrize("blocks", [0, 1, 5, 26])
def test_the_drawing_has_one_cell_a_block(blocks, tmp_path):
    text = report(blocks=blocks).save(tmp_path / "r.html").read_text()
    assert len(re.findall(r'<g class="block[^>]* data-block="\d+"', text)) == blocks


def test_the_sentence_says_what_was_found():
    assert "2 residual blocks (1 identity, 1 projection); their branches hold 70 % of its 10 parameters" in (
        structure_sentence(structure())
    )
    assert "is a plain chain" in structure_sentence(structure(blocks=0))
    assert "joins by concatenation in 2 places" in structure_sentence(structure(blocks=0, dense_joins=("cat", "cat_1")))
