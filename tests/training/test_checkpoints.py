import signal
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
import torch

from skiplens.base.errors import BrokenFileError, InvalidInputError, TooNewFileError
from skiplens.training.checkpoints import Checkpoint, read_checkpoint
from skiplens.training.loop import train
from skiplens.training.recipe import Recipe
from tests.training.killed_run import run
from tests.training.networks import noisy_network, samples

ROOT = Path(__file__).parents[2]


def kill(path: Path, step: int) -> None:
    """The run in a process that is killed, with no chance to tidy up, after `step` steps."""
    command = [sys.executable, "-m", "tests.training.killed_run", str(path), str(step)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, encoding="utf-8", timeout=600)
    assert done.returncode == -signal.SIGKILL, done.stderr


@pytest.mark.slow
def test_a_killed_run_goes_on_and_ends_with_the_same_bits(tmp_path):
    path = tmp_path / "run.ckpt"
    kill(path, 11)
    assert read_checkpoint(path)["record"]["step"] == 8
    history, model = run(path)
    undisturbed, expected = run(None)
    assert history.steps == 30 and history.finished
    assert torch.equal(history.losses, undisturbed.losses)
    assert torch.equal(history.learning_rates, undisturbed.learning_rates)
    assert torch.equal(history.recorded["count"], undisturbed.recorded["count"])
    tensors = [*model.parameters(), *model.buffers()]
    assert all(map(torch.equal, tensors, [*expected.parameters(), *expected.buffers()]))
    assert [file.name for file in tmp_path.iterdir()] == ["run.ckpt"]


def test_a_finished_run_is_not_run_again(tmp_path):
    history, model = run(tmp_path / "run.ckpt")
    again, taken = run(tmp_path / "run.ckpt", killed_at=1)  # would kill this process if it made a step
    assert torch.equal(again.losses, history.losses)
    assert all(map(torch.equal, model.parameters(), taken.parameters()))


def test_a_diverged_run_stays_diverged(tmp_path):
    recipe = Recipe(learning_rate=1e200, steps=9)
    first = train(noisy_network(), samples(), recipe, checkpoint=tmp_path / "run.ckpt")
    second = train(noisy_network(), samples(), recipe, checkpoint=tmp_path / "run.ckpt")
    assert first.outcome == second.outcome and first.diverged


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"recipe": Recipe(steps=4)}, r"differs in recipe \(Recipe\(steps=3\) there, Recipe\(steps=4\) here\)"),
        ({"model": lambda: torch.nn.Linear(4, 3)}, "differs in first weights"),
        ({"data": samples(21)}, "differs in data"),
        ({"callbacks": [lambda moment: None]}, "differs in callbacks"),
    ],
)
def test_another_run_is_refused(tmp_path, change, message):
    def go(model=noisy_network, data=None, recipe=None, callbacks=()):
        data, recipe = data or samples(), recipe or Recipe(steps=3)
        return train(model(), data, recipe, callbacks=callbacks, checkpoint=tmp_path / "run.ckpt")

    go()
    with pytest.raises(InvalidInputError, match=message):
        go(**change)


def test_a_damaged_file_is_told(tmp_path):
    path = tmp_path / "run.ckpt"
    train(noisy_network(), samples(), Recipe(steps=3), checkpoint=path)
    whole = path.read_bytes()
    with zipfile.ZipFile(path) as archive:  # between its entries there are bytes that mean nothing
        entry = max(archive.infolist(), key=lambda info: info.file_size)
        header = whole[entry.header_offset :]
        names = int.from_bytes(header[26:28], "little") + int.from_bytes(header[28:30], "little")
        middle = entry.header_offset + 30 + names + entry.file_size // 2
    for damaged in (
        whole[:-200],
        whole[:middle],
        b"",
        whole[:middle] + bytes([whole[middle] ^ 1]) + whole[middle + 1 :],
    ):
        path.write_bytes(damaged)
        with pytest.raises(BrokenFileError, match="is not a whole checkpoint of a training run"):
            train(noisy_network(), samples(), Recipe(steps=3), checkpoint=path)


def test_a_file_that_would_run_code_is_refused(tmp_path):
    torch.save({"format": "skiplens-training", "model": torch.nn.Linear(1, 1)}, tmp_path / "run.ckpt")
    with pytest.raises(BrokenFileError, match="is not a whole checkpoint"):
        read_checkpoint(tmp_path / "run.ckpt")


def test_a_foreign_and_a_newer_file_are_told_apart(tmp_path):
    torch.save({"weights": torch.zeros(2)}, tmp_path / "foreign.ckpt")
    with pytest.raises(BrokenFileError, match="was not written by a training run of Skiplens"):
        read_checkpoint(tmp_path / "foreign.ckpt")
    torch.save({"format": "skiplens-training", "format_version": 99}, tmp_path / "newer.ckpt")
    with pytest.raises(TooNewFileError, match="written by a newer Skiplens"):
        read_checkpoint(tmp_path / "newer.ckpt")


def test_checkpoints_do_not_change_the_numbers(tmp_path):
    recipe = Recipe(batch_size=8, epochs=2)
    kept = train(noisy_network(), samples(), recipe, checkpoint=Checkpoint(tmp_path / "run.ckpt", every_seconds=0))
    assert torch.equal(kept.losses, train(noisy_network(), samples(), recipe).losses)
