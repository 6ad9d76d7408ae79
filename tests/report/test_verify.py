"""Planted faults are found, fixed by the suggested code, and the fixed network trains better; what fails is said."""

import copy
import math
from dataclasses import replace
from functools import partial

import pytest
import torch
from torch import nn

import skiplens as sl
from skiplens.base.errors import SettingsError
from skiplens.edits.remedies import apply_remedy
from skiplens.readings.finding import Finding, Remedy
from skiplens.report import verification
from skiplens.report.inspection import Report
from skiplens.report.verification import INTERRUPTED, SAME_TRAINING, RaceOptions
from skiplens.report.verification_reading import VerificationReading
from skiplens.training.callbacks import evaluate
from skiplens.training.loop import train
from skiplens.training.recipe import Recipe
from tests.report import planted

FAULTS = {"signal_growth": planted.exploding, "flat_branches": planted.triple_zero, "dead_branches": planted.dead}
slow = partial(pytest.param, marks=pytest.mark.slow)
SHORT = RaceOptions(steps=4, seeds=2, learning_rates=(0.01,))


def looked_at(net: nn.Module) -> Report:
    return sl.inspect(net, planted.data(), lenses=["structure"])


def proofs(report: Report) -> dict[str, VerificationReading]:
    return {reading.rule: reading for reading in report.readings if isinstance(reading, VerificationReading)}


@pytest.mark.parametrize("rule", [slow("signal_growth"), slow("flat_branches"), "dead_branches"])
def test_a_planted_fault_is_found_and_its_change_is_proved_to_help(rule):
    net = FAULTS[rule]()
    before = copy.deepcopy(net.state_dict())
    options = RaceOptions(steps=90, learning_rates=(0.1, 0.03, 0.01, 0.001))
    proof = proofs(sl.verify(looked_at(net), net, planted.data(), options=options))[rule]
    assert proof.solved and proof.brought == () and proof.outcome == "helps"
    assert proof.p_value == 2 / 2**7 and proof.wins == 7
    assert all(torch.equal(value, net.state_dict()[name]) for name, value in before.items())


@pytest.mark.parametrize("rule", [slow("signal_growth"), "flat_branches", slow("dead_branches")])
def test_the_pasted_code_removes_the_finding_and_lowers_the_loss_that_training_reaches(rule):
    net = FAULTS[rule]()
    (finding,) = (found for found in looked_at(net).findings if found.rule == rule)
    pasted = copy.deepcopy(net)
    exec(finding.code, {"model": pasted})
    assert rule not in {found.rule for found in looked_at(pasted).findings}
    recipe = Recipe(learning_rate=0.01, momentum=0.9, batch_size=32, steps=150)
    for seed in range(3):
        reached = []
        for start in (net, pasted):
            trained = copy.deepcopy(start)
            diverged = train(trained, planted.data(), replace(recipe, seed=seed)).diverged
            reached.append(math.inf if diverged else evaluate(trained, planted.data()).loss)
        assert reached[1] < 0.9 * reached[0]


def test_a_change_that_does_not_help_is_shown_as_such_and_made_once_for_all_seeds(monkeypatch):
    made: list[Remedy] = []
    monkeypatch.setattr(verification, "apply_remedy", lambda *given: made.append(given[0]) or apply_remedy(*given))
    net = planted.healthy(2)
    idle = Finding(
        rule="dead_units",
        severity="warning",
        sentence="Nothing is wrong.",
        number=0.5,
        threshold=0.9,
        source="nowhere",
        change="Multiply by one.",
        where=("1",),
        remedy=Remedy("scale_parameters", {"factors": {"1.layers.2.weight": 1.0}}),
    )
    report = replace(looked_at(net), findings=(idle,))
    proof = proofs(sl.verify(report, net, planted.data(), options=replace(SHORT, seeds=6)))["dead_units"]
    assert torch.equal(proof.losses_before, proof.losses_after)  # the same batches in the same order
    assert proof.p_value == 1 and proof.outcome == "no difference"
    assert len(made) == 2  # to take its number again and to race


def test_a_change_that_draws_weights_is_made_for_each_seed(monkeypatch):
    seeds: list[int] = []
    note = seeds.append
    monkeypatch.setattr(
        verification, "apply_remedy", lambda *given: note(given[0].parameters["seed"]) or apply_remedy(*given)
    )
    net = planted.dead()
    proofs(sl.verify(looked_at(net), net, planted.data(), options=SHORT))
    assert seeds[1:] == [0, 1, 2]  # one to tune and two to race


def test_the_same_options_give_the_same_numbers_and_leave_the_generators_alone():
    net, state = planted.dead(), torch.get_rng_state()
    first, second = (proofs(sl.verify(looked_at(net), net, planted.data(), options=SHORT)) for _ in range(2))
    assert torch.equal(first["dead_branches"].losses_after, second["dead_branches"].losses_after)
    assert torch.equal(state, torch.get_rng_state())


def test_a_change_of_mode_is_measured_again_but_not_raced():
    net = nn.Sequential(planted.healthy(2), planted.Thinning()).train()
    proof = proofs(sl.verify(looked_at(net), net, planted.data(), options=SHORT))["dropout_on"]
    assert (proof.before, proof.after, proof.solved) == (1, 0, True)
    assert proof.outcome == "not raced" and proof.reason == SAME_TRAINING


def test_two_findings_with_one_change_share_its_race():
    net = planted.dead()
    report = looked_at(net)
    again = replace(report.findings[0], rule="dead_units")
    made: list[int] = []
    shared = replace(report, findings=(report.findings[0], again))
    found = proofs(sl.verify(shared, net, planted.data(), options=SHORT, progress=lambda *told: made.append(told[1])))
    assert torch.equal(found["dead_units"].losses_after, found["dead_branches"].losses_after)
    assert max(made) == 2 * 3  # two networks, one run to tune and two to race


def test_without_time_the_numbers_are_taken_and_the_reason_is_said():
    net = planted.dead()
    proof = proofs(sl.verify(looked_at(net), net, planted.data(), options=RaceOptions(seconds=1e-6)))["dead_branches"]
    assert proof.solved and proof.outcome == "not raced"
    assert "There was no time for a race" in proof.reason and "Give more seconds" in proof.reason


def test_targets_that_fit_no_loss_leave_the_race_out():
    net, (inputs, targets) = planted.dead(), planted.data()
    proof = proofs(sl.verify(looked_at(net), net, (inputs, targets + 9), options=SHORT))["dead_branches"]
    assert proof.solved and "There was no race: The targets run from" in proof.reason


def test_a_change_that_cannot_be_made_is_said_and_the_others_go_on():
    net = planted.dead()
    report = looked_at(net)
    pools = Remedy("add_average_pool_skips", {"blocks": ("1",)})
    impossible = replace(report.findings[0], rule="dead_units", remedy=pools)
    found = proofs(
        sl.verify(replace(report, findings=(impossible, *report.findings)), net, planted.data(), options=SHORT)
    )
    assert "The change cannot be made here: The shortcut of '1' is of kind identity" in found["dead_units"].reason
    assert not found["dead_units"].solved and found["dead_units"].outcome == "not raced"
    assert found["dead_branches"].seeds == 2


def test_an_interruption_leaves_what_was_finished():
    net = planted.dead()

    def stop(told, count, total):
        if (told, count) == ("training race", 5):
            raise KeyboardInterrupt

    proof = proofs(sl.verify(looked_at(net), net, planted.data(), options=SHORT, progress=stop))["dead_branches"]
    assert proof.solved and proof.outcome == "not raced" and proof.reason == INTERRUPTED


def test_a_report_without_suggestions_stays_as_it_is():
    net = planted.healthy(2)
    report = looked_at(net)
    assert sl.verify(report, net, planted.data(), options=SHORT) == report


def test_drawn_weights_are_those_of_the_seed():
    drawn = Remedy("redraw_parameters", {"drawn": ("a",), "ones": (), "zeros": (), "seed": 0})
    assert drawn.with_seed(5).parameters["seed"] == 5 and drawn.parameters["seed"] == 0
    scaled = Remedy("scale_parameters", {"factors": {}})
    assert scaled.with_seed(5) is scaled


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"seeds": 1}, r"seeds is 1; wanted between 2 and 16"),
        ({"seeds": 17}, r"seeds is 17; wanted between 2 and 16"),
        ({"learning_rates": ()}, "learning_rates is empty; give at least one"),
        ({"seconds": 0.0}, r"seconds is 0\.0; wanted a number above 0"),
    ],
)
def test_options_with_which_no_race_is_possible_are_refused(given, message):
    with pytest.raises(SettingsError, match=message):
        RaceOptions(**given)
