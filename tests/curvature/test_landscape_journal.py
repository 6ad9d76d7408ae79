import signal
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from skiplens.base.errors import BrokenFileError, InvalidInputError
from skiplens.curvature.landscape import loss_landscape
from skiplens.curvature.landscape_directions import Journal
from tests.curvature.slices import classes, kept_slice, perceptron

ROOT = Path(__file__).parents[2]


def test_a_killed_slice_goes_on_and_ends_with_the_same_bits(tmp_path):
    command = [sys.executable, "-m", "tests.curvature.slices", str(tmp_path / "kept"), "3"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, encoding="utf-8", timeout=120)
    assert done.returncode == -signal.SIGKILL, done.stderr
    assert len((tmp_path / "kept/rows.jsonl").read_text().splitlines()) == 1 + 3
    computed = []
    whole = kept_slice(tmp_path / "whole")
    rest = loss_landscape(
        perceptron(),
        classes(),
        loss="cross_entropy",
        points=7,
        journal=str(tmp_path / "kept"),
        progress=counting(computed),
    )
    assert max(computed) == 4
    assert torch.equal(rest.losses, whole.losses) and torch.equal(rest.curvatures, whole.curvatures)


def counting(seen: list[int]):
    return lambda label, done, total: seen.append(done) if label == "loss landscape" else None


def test_a_finished_slice_is_not_computed_again(tmp_path):
    first, computed = kept_slice(tmp_path), []
    again = loss_landscape(
        perceptron(), classes(), loss="cross_entropy", points=7, journal=str(tmp_path), progress=counting(computed)
    )
    assert torch.equal(first.losses, again.losses) and computed == [0]


def test_a_torn_line_is_dropped_and_computed_again(tmp_path):
    whole = kept_slice(tmp_path)
    path = tmp_path / "rows.jsonl"
    path.write_bytes(path.read_bytes()[:-9])
    assert torch.equal(kept_slice(tmp_path).losses, whole.losses)
    assert len(path.read_text().splitlines()) == 1 + 7


@pytest.mark.parametrize("place", [0, 3])
def test_a_changed_line_is_not_believed(tmp_path, place):
    whole = kept_slice(tmp_path)
    path = tmp_path / "rows.jsonl"
    lines = path.read_text().splitlines(keepends=True)
    lines[place] = lines[place].replace("0", "1", 1)
    path.write_text("".join(lines))
    assert torch.equal(kept_slice(tmp_path).losses, whole.losses)


def test_another_slice_is_refused(tmp_path):
    kept_slice(tmp_path)
    for change, named in (
        ({"radius": 2.0}, "radius"),
        ({"points": 9}, "points"),
        ({"directions": "random"}, "directions"),
    ):
        with pytest.raises(InvalidInputError, match=f"holds another slice, which differs in .*{named}"):
            loss_landscape(
                perceptron(), classes(), loss="cross_entropy", journal=str(tmp_path), **{"points": 7} | change
            )
    with pytest.raises(InvalidInputError, match="differs in weights, data"):
        loss_landscape(
            perceptron().requires_grad_(True),
            classes(9),
            loss="cross_entropy",
            points=7,
            journal=str(tmp_path),
            parameters=["0.weight"],
        )


def test_damaged_directions_are_told(tmp_path):
    kept_slice(tmp_path)
    (tmp_path / "directions.pt").write_bytes(b"nothing")
    with pytest.raises(BrokenFileError, match=r"directions\.pt is damaged .* Delete the folder"):
        kept_slice(tmp_path)


def test_numbers_that_are_none_come_back(tmp_path):
    journal = Journal(str(tmp_path), {"a": 1})
    journal.add(0, [float("nan"), float("inf"), -0.1])
    back = Journal(str(tmp_path), {"a": 1}).rows[0]
    assert str(back) == str([float("nan"), float("inf"), -0.1])


def test_without_a_folder_nothing_is_written(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Journal(None, {}).add(0, [1.0])
    assert not list(tmp_path.iterdir())
