"""What all batched trainers share: company changes no bits, divergence is marked, a killed run goes on."""

import pytest
import torch

from skiplens.base.errors import InvalidInputError
from skiplens.base.randomness import Randomness
from skiplens.linalg.second_moments import second_moments
from skiplens.training.batched import chains
from skiplens.training.batched.chains import Units, train_linear_networks, train_rectified_networks
from skiplens.training.batched.plan import CHECK_EVERY, BatchedPlan, best_rate, drawn_starts
from skiplens.training.checkpoints import Checkpoint
from skiplens.zoo.weight_laws import xavier_weights
from tests.papers.li2016_shortcuts.hessian.reference import data

RATES = torch.tensor([0.02, 40.0, 0.05, 30.0, 0.01])
STAY, LEAVE = [0, 2, 4], [1, 3]


def starts(nets=5):
    return drawn_starts(xavier_weights, 6, 10, [Randomness(2).child(net) for net in range(nets)])


def linear(chosen, plan, units=Units(), progress=lambda *_: None):  # noqa: B008 - frozen
    return train_linear_networks(starts()[chosen], RATES[chosen], second_moments(*data(10, 40)), plan, units, progress)


def rectified(chosen, plan, progress=lambda *_: None):
    return train_rectified_networks(
        starts()[chosen].float(), RATES[chosen], data(10, 40), plan, shortcut=False, progress=progress
    )


each_trainer = pytest.mark.parametrize("train", [linear, rectified])


def same(left, right):
    return all(torch.equal(left[name], right[name]) for name in left)


@each_trainer
@pytest.mark.parametrize("net", STAY)
def test_company_changes_no_bits(train, net):
    """Also after the networks that diverge have been taken out and the others have moved."""
    plan = BatchedPlan(3 * CHECK_EVERY, record_at=(0, 50))
    together, alone = train(list(range(5)), plan), train([net], plan)
    assert torch.equal(together.weights[net], alone.weights[0])
    assert torch.equal(together.loss_history[:, net], alone.loss_history[:, 0])


@each_trainer
def test_the_size_of_chunks_changes_no_bits(train, monkeypatch):
    whole = train(list(range(5)), BatchedPlan(30))
    monkeypatch.setattr(chains, "CACHE_BYTES", 1)  # one network after the other
    pieces = train(list(range(5)), BatchedPlan(30))
    assert torch.equal(whole.weights[STAY], pieces.weights[STAY])
    assert torch.equal(whole.losses, pieces.losses)


@each_trainer
def test_what_diverges_is_marked_and_given_up(train):
    plan = BatchedPlan(100, record_at=(0, 100), snapshots_at=(100,))
    runs = train(list(range(5)), plan)
    assert runs.diverged.tolist() == [False, True, False, True, False]
    assert bool(torch.isinf(runs.losses[LEAVE]).all()) and bool(torch.isfinite(runs.losses[STAY]).all())
    assert bool((runs.diverged_at[LEAVE] <= CHECK_EVERY).all()) and bool((runs.diverged_at[STAY] == -1).all())
    assert bool(torch.isfinite(runs.loss_history[0]).all()) and bool(runs.loss_history[1, LEAVE].isnan().all())
    for parameters in (runs.parameters, runs.snapshots[100]):
        for tensor in parameters.values():
            assert bool(tensor[LEAVE].isnan().all()) and bool(torch.isfinite(tensor[STAY]).all())


@each_trainer
def test_all_may_diverge(train):
    runs = train(LEAVE, BatchedPlan(60, record_at=(60,)))
    assert bool(runs.diverged.all()) and bool(torch.isinf(runs.losses).all())


@pytest.mark.parametrize("nets", [1, 3])
def test_starts_stay_as_they_are(nets):
    given, rates = starts(nets), torch.full((nets,), 0.05)
    before = given.clone()
    train_linear_networks(given, rates, second_moments(*data(10, 40)), BatchedPlan(5))
    train_rectified_networks(given, rates, data(10, 40), BatchedPlan(5))
    assert torch.equal(given, before)


class StopError(Exception):
    """What a test throws into a run."""


@each_trainer
@pytest.mark.parametrize("at", [14, 40, 63])
def test_a_run_that_was_killed_goes_on_with_the_same_bits(train, at, tmp_path):
    def stop(label, done, total):
        if done >= at:
            raise StopError

    records = {"record_at": (0, 7, 50, 90), "snapshots_at": (20, 90)}
    plan = BatchedPlan(90, **records, checkpoint=Checkpoint(tmp_path / "run.pt", every_steps=7))
    with pytest.raises(StopError):
        train(list(range(5)), plan, progress=stop)
    moments = []
    resumed = train(list(range(5)), plan, progress=lambda label, done, total: moments.append(done))
    whole = train(list(range(5)), BatchedPlan(90, **records))
    assert 0 < moments[0] <= at + 7, "the run began anew"
    good = [0, 2, 4]
    assert same({k: v[good] for k, v in resumed.parameters.items()}, {k: v[good] for k, v in whole.parameters.items()})
    assert torch.equal(resumed.losses, whole.losses) and torch.equal(resumed.diverged, whole.diverged)
    assert torch.equal(resumed.loss_history[:, good], whole.loss_history[:, good])
    assert torch.equal(resumed.gradient_norm_history[:, good], whole.gradient_norm_history[:, good])
    assert same(
        {k: v[good] for k, v in resumed.snapshots[20].items()}, {k: v[good] for k, v in whole.snapshots[20].items()}
    )


@each_trainer
def test_a_finished_run_is_not_run_again(train, tmp_path):
    def refuse(label, done, total):
        raise AssertionError("an epoch was made")

    plan = BatchedPlan(25, checkpoint=tmp_path / "run.pt")
    first = train(list(range(5)), plan)
    again = train(list(range(5)), plan, progress=refuse)
    assert torch.equal(first.losses, again.losses)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda plan: linear([1, 2], plan), "differs in first weights"),
        (lambda plan: linear([0, 2], plan, Units(3)), "differs in networks"),
        (lambda plan: linear([0, 2], BatchedPlan(30, record_at=(3,), checkpoint=plan.checkpoint)), "differs in plan"),
        (lambda plan: rectified([0, 2], plan), "differs in networks"),
    ],
)
def test_the_checkpoint_of_another_run_is_refused(change, message, tmp_path):
    plan = BatchedPlan(30, checkpoint=tmp_path / "run.pt")
    linear([0, 2], plan)
    with pytest.raises(InvalidInputError, match=message):
        change(plan)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"epochs": 0}, "epochs is 0; train for at least one"),
        ({"epochs": 5, "record_at": (2, 6)}, r"Epochs \[6\] lie outside of a run from 0 to 5"),
        ({"epochs": 5, "snapshots_at": (-1,)}, r"Epochs \[-1\] lie outside"),
    ],
)
def test_impossible_plans_are_refused(arguments, message):
    with pytest.raises(InvalidInputError, match=message):
        BatchedPlan(**arguments)


def test_the_best_rate_has_the_lowest_mean_and_no_divergence():
    inf, nan = torch.inf, torch.nan
    losses = torch.tensor([[3.0, 3.0], [1.0, inf], [2.0, 1.0], [nan, 0.0]])
    assert best_rate(losses) == 2
