"""A pilot that was ended anywhere goes on from its journal to the same bits, and from no other one."""

import math

import pytest
import torch
from torch import nn

from skiplens.base import files
from skiplens.base.errors import InvalidInputError
from skiplens.base.progress import silent
from skiplens.base.randomness import Randomness
from skiplens.trainability.forecast import TrainingLoss, forecast
from skiplens.trainability.optimizers import optimizer_choice
from skiplens.trainability.pilot import Runner, run_pilot
from skiplens.training.source import source_of
from tests.trainability.test_pilot import BATCH, data, network


class Killed(BaseException):
    """What nobody catches, as nobody catches a kill."""


def noisy(parameters):
    """Momentum, a schedule, and noise that the optimizer draws."""

    class Noisy(torch.optim.SGD):
        def step(self, closure=None):
            super().step()
            for group in self.param_groups:
                for parameter in group["params"]:
                    parameter.data.add_(torch.randn_like(parameter), alpha=1e-3)

    optimizer = Noisy(parameters, lr=0.3, momentum=0.9)
    return optimizer, torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 30)


def piloted(folder=None, optimizer="adam", model=None, **changed):
    asked = {"cost": 40, "seed": 0, "loss": None, "samples": data()} | changed
    source = source_of(asked["samples"], BATCH, Randomness(0), torch.device("cpu"))
    model = network(nn.Dropout(0.3), nn.BatchNorm1d(8)) if model is None else model
    choice, loss = optimizer_choice(optimizer), TrainingLoss(asked["loss"])
    asked = {"cost": asked["cost"], "seed": asked["seed"], "journal": folder, "progress": silent}
    return run_pilot(model, source, loss, choice, **asked)


def numbers(pilot):
    """All that a pilot says, so that no number equals another one unless their bits do."""
    trials = [(trial.rate, [loss.hex() for loss in trial.losses], trial.diverged) for trial in pilot.trials]
    return trials, pilot.cost


def ends_at_gradient(monkeypatch, number):
    """Everything ends with the `number`-th gradient from now on."""
    passes, made = Runner._passes, []

    def counted(self, *arguments):
        made.append(1)
        if len(made) == number:
            raise Killed
        return passes(self, *arguments)

    monkeypatch.setattr(Runner, "_passes", counted)
    return made


@pytest.mark.parametrize("optimizer", ["adam", "sgd", noisy])
def test_ended_again_and_again_it_comes_to_the_same_bits(tmp_path, monkeypatch, optimizer):
    whole, runs, found = numbers(piloted(None, optimizer)), 0, None
    while found is None:
        with monkeypatch.context() as patch:
            ends_at_gradient(patch, 3 + 3 * runs)
            try:
                found = piloted(tmp_path, optimizer)
            except Killed:
                runs += 1
    assert numbers(found) == whole
    # the last round takes 13 gradients at once, besides the one that all share; without a journal 40 would be needed
    assert runs <= 5


def test_what_diverged_stays_so_and_ends_the_same(tmp_path, monkeypatch):
    def wild(parameters):
        return torch.optim.SGD(parameters, lr=1e4)

    whole = piloted(None, wild)
    assert any(trial.diverged for trial in whole.trials)
    with monkeypatch.context() as patch, pytest.raises(Killed):
        ends_at_gradient(patch, 12)
        piloted(tmp_path, wild)
    assert numbers(piloted(tmp_path, wild)) == numbers(whole)


def test_killed_before_the_end_was_written(tmp_path, monkeypatch):
    """All trials are in the journal then, and the working copy has to be put where the last of them ended."""
    whole = numbers(piloted())
    with monkeypatch.context() as patch, pytest.raises(Killed):
        patch.setattr("skiplens.trainability.journal.Journal.end", ends)
        piloted(tmp_path)
    with monkeypatch.context() as patch:
        made = ends_at_gradient(patch, 0)
        assert numbers(piloted(tmp_path)) == whole and len(made) == 1  # the one that all share


def ends(self, found):
    raise Killed


def test_what_ended_is_not_computed_again_and_leaves_no_states(tmp_path, monkeypatch):
    whole = numbers(piloted(tmp_path))
    assert [path.name for path in tmp_path.iterdir()] == ["pilot.pt"]
    made = ends_at_gradient(monkeypatch, 1)
    assert numbers(piloted(tmp_path)) == whole and not made


def one_bit(content):
    middle = len(content) // 2
    return content[:middle] + bytes([content[middle] ^ 1]) + content[middle + 1 :]


@pytest.mark.parametrize("damage", [lambda content: content[: len(content) // 2], lambda content: b"", one_bit])
def test_a_damaged_file_counts_as_not_there(tmp_path, monkeypatch, damage):
    whole = numbers(piloted())
    with monkeypatch.context() as patch, pytest.raises(Killed):
        ends_at_gradient(patch, 35)
        piloted(tmp_path)
    kept = sorted(tmp_path.glob("rate_*.pt"))
    for path in kept[::2]:
        path.write_bytes(damage(path.read_bytes()))
    assert numbers(piloted(tmp_path)) == whole
    (tmp_path / "pilot.pt").write_bytes(b"PK nothing")
    assert numbers(piloted(tmp_path)) == whole


def doubled(outputs, targets):
    return 2 * nn.functional.cross_entropy(outputs, targets)


@pytest.mark.parametrize("ended", [True, False])
@pytest.mark.parametrize(
    ("name", "changed"),
    [
        ("model", {"model": network(nn.Dropout(0.4), nn.BatchNorm1d(8))}),
        ("data", {"samples": (data()[0].flip(0), data()[1])}),
        ("loss", {"loss": doubled}),
        ("optimizer", {"optimizer": "adamw"}),
        ("optimizer", {"optimizer": noisy}),
        ("cost", {"cost": 41}),
        ("seed", {"seed": 1}),
    ],
)
def test_another_forecast_is_refused(tmp_path, monkeypatch, ended, name, changed):
    with monkeypatch.context() as patch:
        ends_at_gradient(patch, 0 if ended else 20)
        try:
            piloted(tmp_path)
        except Killed:
            assert not ended
    before = {path: path.read_bytes() for path in tmp_path.iterdir()}
    with pytest.raises(InvalidInputError, match=rf"holds another run, which differs in .*{name} \("):
        piloted(tmp_path, **changed)
    assert {path: path.read_bytes() for path in tmp_path.iterdir()} == before


def test_another_version_begins_elsewhere(tmp_path, monkeypatch):
    piloted(tmp_path)
    monkeypatch.setattr("skiplens.trainability.journal.VERSION", "0.0.1")
    with pytest.raises(InvalidInputError, match=r"differs in version \("):
        piloted(tmp_path)


def test_a_forecast_with_a_journal_says_what_one_without_says(tmp_path, monkeypatch):
    model, samples = network(), data()
    whole = forecast(model, samples, cost=30)
    with monkeypatch.context() as patch, pytest.raises(Killed):
        ends_at_gradient(patch, 15)
        forecast(model, samples, cost=30, journal=tmp_path)
    again = forecast(model, samples, cost=30, journal=str(tmp_path))
    assert same(again.losses, whole.losses) and same(again.curve, whole.curve)
    assert again.interval == whole.interval and again.cost == whole.cost
    longer = forecast(model, samples, cost=30, steps=900, journal=tmp_path)  # the pilot is the same for any length
    assert longer.steps == 900 and same(longer.losses, whole.losses)


def same(one, other):
    return one.shape == other.shape and torch.equal(one.nan_to_num(math.pi), other.nan_to_num(math.pi))


def test_a_folder_that_cannot_be_is_one_sentence(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(InvalidInputError, match="Nothing can be written to"):
        piloted(tmp_path / "file")


def test_a_full_disk_is_one_sentence_and_costs_nothing(tmp_path, monkeypatch):
    whole, written = numbers(piloted()), []

    def full(descriptor):
        written.append(descriptor)
        if len(written) > 3:
            raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch, pytest.raises(files.SkiplensError, match="No space left"):
        patch.setattr(files.os, "fsync", full)
        piloted(tmp_path)
    assert numbers(piloted(tmp_path)) == whole
