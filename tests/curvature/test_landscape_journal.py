import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest
import torch
from torch import nn

from skiplens.base.errors import BrokenFileError, InvalidInputError
from skiplens.curvature.landscape import loss_landscape
from skiplens.curvature.landscape_directions import Journal
from tests.curvature.slices import classes, kept_slice, perceptron

ROOT = Path(__file__).parents[2]


def test_a_killed_slice_goes_on_and_ends_with_the_same_bits(tmp_path):
    command = [sys.executable, "-m", "tests.curvature.slices", str(tmp_path / "kept"), "3"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, encoding="utf-8", timeout=600)
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
    with pytest.raises(InvalidInputError, match=r"differs in weights, .*data"):
        loss_landscape(
            perceptron().requires_grad_(True),
            classes(9),
            loss="cross_entropy",
            points=7,
            journal=str(tmp_path),
            parameters=["0.weight"],
        )


def along_a_line(folder, model=None, data=None, loss="cross_entropy"):
    along = [torch.ones(4 * 6 + 6 + 6 * 3 + 3, dtype=torch.float64)]
    options = {"loss": loss, "directions": along, "points": 3, "journal": str(folder)}
    return loss_landscape(perceptron() if model is None else model, data or classes(), **options)


def doubled(outputs, targets):
    return 2 * nn.functional.cross_entropy(outputs, targets)


def halved_twice(outputs, targets):
    return 4 * nn.functional.cross_entropy(outputs, targets) / 2


def test_data_of_the_same_size_and_loss_are_told_apart(tmp_path):
    """Mirrored samples have the loss of the samples at these weights, and another one beside them."""
    model = perceptron()
    with torch.no_grad():
        model[0].weight[:, 0] = 0
    (inputs, targets), mirror = classes(), torch.tensor([-1.0, 1.0, 1.0, 1.0], dtype=torch.float64)
    whole = along_a_line(tmp_path / "one", model, (inputs, targets))
    other = along_a_line(tmp_path / "other", model, (inputs * mirror, targets))
    assert whole.loss == other.loss and not torch.equal(whole.losses, other.losses)
    with pytest.raises(InvalidInputError, match=r"holds another slice, which differs in data\."):
        along_a_line(tmp_path / "one", model, (inputs * mirror, targets))


def test_another_loss_mode_or_buffer_is_told_apart(tmp_path):
    along_a_line(tmp_path / "loss", loss=doubled)
    with pytest.raises(InvalidInputError, match=r"differs in loss\."):
        along_a_line(tmp_path / "loss", loss=halved_twice)
    along_a_line(tmp_path / "mode")
    with pytest.raises(InvalidInputError, match=r"differs in model\."):
        along_a_line(tmp_path / "mode", perceptron().eval())


def test_a_loader_that_shuffles_goes_on(tmp_path):
    inputs, targets = classes()
    whole = along_a_line(tmp_path, data=(inputs, targets))
    assert torch.equal(along_a_line(tmp_path, data=(inputs.flip(0), targets.flip(0))).losses, whole.losses)


def test_a_loss_that_cannot_be_told_from_others_is_refused_with_a_journal_only(tmp_path):
    lock = threading.Lock()

    def guarded(outputs, targets):
        with lock:
            return doubled(outputs, targets)

    with pytest.raises(InvalidInputError, match=r"be told whether '.*guarded' is the same as before"):
        along_a_line(tmp_path, loss=guarded)


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
