"""The pilot does what plain training loops do, spends what it may, and leaves the model alone."""

import copy
import math
import tempfile
import threading

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from skiplens.base.errors import InvalidInputError
from skiplens.base.progress import silent
from skiplens.base.randomness import Randomness
from skiplens.trainability import journal
from skiplens.trainability.forecast import TrainingLoss, forecast
from skiplens.trainability.optimizers import optimizer_choice
from skiplens.trainability.pilot import Runner, Trial, has_diverged, race, rounds, run_pilot
from skiplens.training.source import source_of
from tests.networks import noise

SAMPLES, BATCH = 48, 8


def data():
    generator = torch.Generator().manual_seed(0)
    inputs = torch.randn(SAMPLES, 5, generator=generator, dtype=torch.float64)
    return inputs, (inputs[:, 0] > 0).long()


def network(*between):
    torch.manual_seed(1)
    return nn.Sequential(nn.Linear(5, 8), *between, nn.Tanh(), nn.Linear(8, 2)).double()


def piloted(model, optimizer="adam", cost=40, seed=0, samples=None):
    source = source_of(samples or data(), BATCH, Randomness(0), torch.device("cpu"))
    return run_pilot(
        model, source, TrainingLoss(None), optimizer_choice(optimizer), cost=cost, seed=seed, progress=silent
    )


@given(st.integers(12, 500), st.integers(2, 11))
def test_rounds_spend_what_they_may_and_no_more(cost, rates):
    plan = rounds(cost, rates)
    spent = 1 + sum(count * steps for count, steps in plan)
    assert cost - rates <= spent <= cost
    counts = [count for count, _ in plan]
    assert counts == sorted(counts, reverse=True)
    assert plan[-1][1] >= 1


@pytest.mark.parametrize("between", [(), (nn.BatchNorm1d(8),)], ids=["plain", "batch norm"])
@pytest.mark.parametrize(
    ("name", "plain"),
    [
        ("adam", lambda p, rate: torch.optim.Adam(p, lr=rate)),
        ("sgd", lambda p, rate: torch.optim.SGD(p, lr=rate, momentum=0.9)),
        ("adamw", lambda p, rate: torch.optim.AdamW(p, lr=rate)),
    ],
)
def test_every_trial_is_a_plain_training(name, plain, between):
    model = network(*between)
    found = piloted(model, name)
    assert found.cost <= 40
    assert len({len(trial.losses) for trial in found.trials}) > 1  # some ended early
    for trial in found.trials:
        own = copy.deepcopy(model).train()
        optimizer = plain(own.parameters(), trial.rate)
        batches = source_of(data(), BATCH, Randomness(0), torch.device("cpu")).batches(0)
        for loss_there in trial.losses:
            batch = next(batches)
            optimizer.zero_grad()
            loss = F.cross_entropy(own(batch.inputs), batch.targets)
            assert loss.item() == pytest.approx(loss_there, rel=1e-12)
            loss.backward()
            optimizer.step()


def test_the_longest_trial_is_one_of_the_best():
    found = piloted(network())
    longest = max(found.trials, key=lambda trial: len(trial.losses))
    for trial in found.trials:
        if trial is not longest and not trial.diverged:
            assert longest.losses[len(trial.losses) - 1] < trial.losses[-1] * 1.5


def test_a_schedule_and_its_groups_are_kept():
    def factory(parameters):
        parameters = list(parameters)
        optimizer = torch.optim.SGD(
            [{"params": parameters[:1], "lr": 0.2}, {"params": parameters[1:], "lr": 0.05}], weight_decay=0.1
        )
        return optimizer, torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 1 / (1 + step))

    model = network()
    found = piloted(model, factory)
    for trial in found.trials:
        own = copy.deepcopy(model).train()
        values = list(own.parameters())
        batches = source_of(data(), BATCH, Randomness(0), torch.device("cpu")).batches(0)
        for step, loss_there in enumerate(trial.losses):
            batch = next(batches)
            loss = F.cross_entropy(own(batch.inputs), batch.targets)
            assert loss.item() == pytest.approx(loss_there, rel=1e-10)
            slopes = torch.autograd.grad(loss, values)
            with torch.no_grad():
                for place, (value, slope) in enumerate(zip(values, slopes, strict=True)):
                    share = 1.0 if place == 0 else 0.25
                    value -= trial.rate * share / (1 + step) * (slope + 0.1 * value)


def test_nothing_of_the_model_or_the_generator_changes():
    model = network(nn.BatchNorm1d(8), nn.Dropout(0.5)).eval()
    model[0].weight.grad = torch.ones_like(model[0].weight)
    before = copy.deepcopy(model.state_dict())
    state = torch.get_rng_state()
    piloted(model)
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    assert torch.equal(torch.get_rng_state(), state)
    assert torch.equal(model[0].weight.grad, torch.ones_like(model[0].weight))
    assert model[1].weight.grad is None
    assert not model.training


def test_the_same_seed_gives_the_same_numbers_with_dropout():
    model = network(nn.Dropout(0.5))
    first, again, other = piloted(model), piloted(model), piloted(model, seed=1)
    assert [t.losses for t in first.trials] == [t.losses for t in again.trials]
    assert first.trials[0].losses != other.trials[0].losses


def test_states_on_disk_give_the_same_as_in_memory(monkeypatch):
    model = network(nn.BatchNorm1d(8))
    in_memory = piloted(model)
    monkeypatch.setattr(journal, "budget_bytes", lambda device: 0)
    on_disk = piloted(model)
    assert [t.losses for t in on_disk.trials] == [t.losses for t in in_memory.trials]


@pytest.mark.parametrize(("cost", "budget"), [(14, None), (40, None), (40, 0), (90, None)])
def test_no_more_states_wait_than_trials_go_on(cost, budget, monkeypatch):
    put, waiting = journal.Shelf.put, []

    def counted(shelf, *given):
        put(shelf, *given)
        files = {path.name for path in shelf.folder.glob("*.pt")}
        assert len(files) == sum(state is None for state in shelf.held.values())
        waiting.append(len(shelf.held))

    monkeypatch.setattr(journal.Shelf, "put", counted)
    if budget is not None:
        monkeypatch.setattr(journal, "budget_bytes", lambda device: budget)
    piloted(network(), cost=cost)
    plan = [count for count, _ in rounds(cost, 7)]
    assert max(waiting) == plan[1] < plan[0]


@pytest.mark.parametrize("moment", [1, 9, 25, 40])  # the shared gradient, the first round, the second, the last
def test_an_interruption_in_any_round_ends_the_call_and_leaves_nothing(moment, tmp_path, monkeypatch):
    model, data = nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4), nn.Linear(4, 2)), (noise(8, 4), torch.arange(8) % 2)
    before, drawn = {name: value.clone() for name, value in model.state_dict().items()}, torch.get_rng_state()
    steps, passes = [], Runner._passes

    def counted(runner, number, batch):
        steps.append(number)
        if len(steps) == moment:
            raise KeyboardInterrupt
        return passes(runner, number, batch)

    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setattr("skiplens.trainability.journal.budget_bytes", lambda device: 0)  # states go to files
    monkeypatch.setattr(Runner, "_passes", counted)
    with pytest.raises(KeyboardInterrupt):
        forecast(model, data, cost=45)
    assert len(steps) == moment and not list(tmp_path.glob("tmp*"))
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    assert all(parameter.grad is None for parameter in model.parameters()) and model.training
    assert torch.equal(torch.get_rng_state(), drawn)


@pytest.mark.parametrize("last", [math.nan, math.inf, 1e9])
def test_what_blew_up_has_diverged(last):
    assert has_diverged([2.0, last])
    assert not has_diverged([2.0, 1000.0])


def test_a_rate_that_diverges_ends():
    trials = [Trial(0.1, [1.0]), Trial(10.0, [1.0])]

    def extend(trial, first, steps, going_on):
        trial.losses += [math.nan if trial.rate > 1 else 0.5] * steps

    race(trials, 40, extend)
    assert trials[1].diverged
    assert len(trials[0].losses) > len(trials[1].losses)


def test_a_model_that_cannot_be_copied_is_one_sentence():
    model = network()
    model.kept = threading.Lock()
    with pytest.raises(InvalidInputError, match="cannot be copied"):
        piloted(model)


@pytest.mark.parametrize(
    ("optimizer", "words"),
    [
        ("adan", "no optimizer 'adan'"),
        (lambda parameters: 1 / 0, "cannot be made: ZeroDivisionError"),
        (lambda parameters: None, "returned a NoneType"),
        (lambda parameters: torch.optim.SGD(parameters, lr=0.0), "must be positive"),
        (3, "is a int"),
    ],
)
def test_wrong_optimizers_are_one_sentence(optimizer, words):
    with pytest.raises(InvalidInputError, match=words):
        optimizer_choice(optimizer)
