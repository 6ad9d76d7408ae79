"""Files that version 0.1 wrote before its modules moved: a reading of each kind, and the readings of a report."""

from pathlib import Path

import pytest
import torch

from skiplens.readings.file import read_file, write_file
from skiplens.readings.reading import KINDS
from skiplens.report import Report
from skiplens.report.lenses import VIEWS, figures_of, section_of

OLD = Path(__file__).parent / "old"
FILES = sorted(OLD.glob("*.npz"))


def equal(left, right):
    if isinstance(left, torch.Tensor):
        return left.dtype == right.dtype and torch.equal(left.nan_to_num(7.25), right.nan_to_num(7.25))
    if isinstance(left, dict):
        return left.keys() == right.keys() and all(equal(left[name], right[name]) for name in left)
    if isinstance(left, tuple):
        return len(left) == len(right) and all(map(equal, left, right))
    return left == right or (left != left and right != right)


def test_every_kind_has_an_old_file():
    own = {
        name
        for name, kind in KINDS.items()
        if kind.__module__.startswith("skiplens") and "papers" not in kind.__module__
    }
    assert own == {path.stem for path in FILES}


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_an_old_file_is_read_shown_and_written_again(path, tmp_path):
    reading = read_file(path)
    assert reading.kind == path.stem
    write_file(tmp_path / "again.npz", reading)
    again = read_file(tmp_path / "again.npz")
    assert again.provenance == reading.provenance and equal(again.values(), reading.values())
    if type(reading) in VIEWS:
        assert all(figure.marks for figure in figures_of(reading))
        if VIEWS[type(reading)].section is not None:
            assert section_of(reading).sentence


def test_the_readings_of_an_old_report():
    report = Report.load(OLD)
    assert [reading.kind for reading in report.readings] == ["structure", "signal", "verification"]
    assert report.findings[0].rule == "effective_depth"
    assert all(section.sentence for section in report.sections())
