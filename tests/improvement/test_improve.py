"""Improving from outside: networks whose fault is known get better, healthy ones stay, bad input is one sentence."""

import copy
import html
import math
import sys
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from scipy import stats
from torch import nn

import skiplens as sl
from skiplens.base import silent
from skiplens.base.errors import InvalidInputError
from skiplens.graph.batch import Batch
from skiplens.improvement.changes import changes_for, cool_down
from skiplens.improvement.improve import DRAWN, SEEDS, race_cost
from skiplens.improvement.patient import Patient
from skiplens.improvement.plan import trained_with
from skiplens.improvement.race import Race, RacedRun, race_figure, run_to_the_end
from skiplens.improvement.reading import Improvement
from skiplens.improvement.report import improvement_section
from skiplens.improvement.search import FULL, LEAST, Search, budget
from skiplens.plots.figure import Line, Points
from skiplens.readings.file import from_json, to_json
from skiplens.readings.reading import Provenance
from skiplens.report import Report
from skiplens.trainability.forecast import READINGS
from skiplens.trainability.optimizers import clipped, optimizer_choice

STEPS, COST = 80, 300


def data(samples=256):
    generator = torch.Generator().manual_seed(0)
    centres = 3 * torch.randn(3, 12, generator=generator, dtype=torch.float32)
    targets = torch.arange(samples) % 3
    return centres[targets] + torch.randn(samples, 12, generator=generator, dtype=torch.float32), targets


def network(depth, gain=1.0, width=16):
    torch.manual_seed(0)
    layers = [nn.Linear(12, width), nn.ReLU()]
    for _ in range(depth):
        layers += [nn.Linear(width, width), nn.ReLU()]
    made = nn.Sequential(*layers, nn.Linear(width, 3)).float()
    for parameter in made.parameters():
        parameter.data.mul_(gain)
    return made


@pytest.fixture(scope="module")
def faulty():
    return network(10, 0.4)


@pytest.fixture(scope="module")
def better(faulty):
    kept = copy.deepcopy(faulty.state_dict())
    found = sl.improve(faulty, data(), steps=STEPS, cost=COST)
    assert all(torch.equal(kept[name], value) for name, value in faulty.state_dict().items()), "left as it was"
    return found


def test_a_network_that_cannot_train_is_made_to(better, faulty):
    before, after = better.race.ends
    assert (after < 0.5 * before).all() and better.race.p < 0.05
    assert better.changes and better.after.score < better.before.score
    assert [n for n, _ in better.model.named_parameters()] == [n for n, _ in faulty.named_parameters()]
    assert better.reading.cost <= COST + race_cost(STEPS)


def test_the_code_makes_the_same_network(better, faulty):
    inputs = data()[0]
    pasted = {"model": copy.deepcopy(faulty), "inputs": inputs, "optimizer": torch.optim.Adam(faulty.parameters())}
    exec(better.code, pasted)
    assert torch.equal(pasted["model"](inputs), better.model(inputs))


@pytest.mark.slow
def test_what_was_finished_is_not_done_again(better, faulty, tmp_path, monkeypatch):
    calls = []

    def ends_early(*given, **named):
        calls.append(named["seed"])
        if len(calls) == 3:
            raise KeyboardInterrupt
        return run_to_the_end(*given, **named)

    monkeypatch.setattr(sys.modules["skiplens.improvement.improve"], "run_to_the_end", ends_early)
    with pytest.raises(KeyboardInterrupt):
        sl.improve(faulty, data(), steps=STEPS, cost=COST, out=tmp_path)
    pilots = []
    monkeypatch.setattr("skiplens.improvement.search.forecast", lambda *given, **named: pilots.append(named))
    found = sl.improve(faulty, data(), steps=STEPS, cost=COST, out=tmp_path)
    assert not pilots and len(calls) == 3 + 2 * SEEDS - 2
    assert torch.equal(found.race.before, better.race.before) and torch.equal(found.race.after, better.race.after)


def test_other_data_in_the_same_folder_is_other_work(faulty, tmp_path):
    parts = []
    for samples in (256, 128):
        sl.improve(faulty, data(samples), steps=STEPS, cost=COST, keep="outputs", out=tmp_path)
        parts.append(len(list((tmp_path / "parts").glob("*.npz"))))
    assert parts[1] >= parts[0] + 3


def unchanged(found, model):
    same = all(torch.equal(a, b) for a, b in zip(model.parameters(), found.model.parameters(), strict=True))
    return same and found.model is not model and not found.changes and not found.code


def own_schedule(parameters):
    optimizer = torch.optim.Adam(parameters)
    return optimizer, torch.optim.lr_scheduler.LambdaLR(optimizer, lambda number: 1.0)


def test_where_nothing_promises_more_the_network_stays_as_it_is(monkeypatch):
    monkeypatch.setattr("skiplens.improvement.search.CLEARLY", math.inf)  # no change is ever clearly better
    model = network(1)
    found = sl.improve(model, data(), steps=STEPS, cost=COST, keep="outputs", optimizer=own_schedule)
    assert unchanged(found, model) and found.race is None and "as well as anything tried" in found.sentence
    assert found.sentence.endswith("keep='architecture' would try other starts too.")
    assert found.reading.left_out["another start"] == "keep='outputs' does not allow it"
    assert found.reading.cost <= COST, "a schedule of the user's own is not replaced"
    assert found.reading.left_out["a rate that falls at the end"] == "the optimizer has a schedule of its own"


def test_what_the_race_does_not_prove_is_not_changed(faulty, monkeypatch):
    alike = run_to_the_end(network(1), data(64), None, optimizer_choice("sgd"), rate=0.05, steps=STEPS, seed=0)
    monkeypatch.setattr(sys.modules["skiplens.improvement.improve"], "run_to_the_end", lambda *given, **named: alike)
    found = sl.improve(faulty, data(), steps=STEPS, cost=COST)
    assert unchanged(found, faulty) and found.race.gain == 1 and "Not proven" in found.sentence


OWN, LOWER = (2.0, 2.04, 2.01), (0.1, 0.11, 0.1)  # losses of the network as it is, and much lower ones


@pytest.mark.parametrize(
    ("changed", "cooled", "own_cooled", "kept"),
    [
        ((0.2, 0.21, 0.22), LOWER, OWN, "changed and cooled"),
        ((0.2, 0.21, 0.22), (0.19, 0.2, 0.21), OWN, "changed"),  # proven, but not worth a change
        ((0.2, 0.21, 0.22), (0.02, 0.3, 0.1), OWN, "changed"),  # lower on average, not beyond chance
        (
            (1.0, 3.0, 2.0),
            LOWER,
            OWN,
            "",
        ),  # the change is not proven, so how it ends with a falling rate does not count
        ((1.0, 3.0, 2.0), OWN, LOWER, "cooled"),
    ],
)
def test_what_is_kept_is_asked_whether_a_falling_rate_helps(faulty, monkeypatch, changed, cooled, own_cooled, kept):
    """In the place of trainings: losses by whether the network was changed and whether the rate falls."""
    calls = []

    def ended(model, *given, rate, steps, seed, last, **named):
        new = not torch.equal(next(model.parameters()), next(faulty.parameters()))
        calls.append((new, rate, seed, last))
        ends = (changed, cooled) if new else (OWN, own_cooled)
        losses, other = (torch.full((steps,), end[seed - 1]).double() for end in ends)
        return RacedRun(losses=losses, cooled=other, provenance=Provenance.begin({}, 0, "cpu").end())

    def test(before, after):
        added = found.before.guess / 100
        logs = (np.log(np.array(losses) + added) for losses in (before, after))
        return float(stats.ttest_rel(*logs, alternative="greater").pvalue)

    monkeypatch.setattr(sys.modules["skiplens.improvement.improve"], "run_to_the_end", ended)
    found = sl.improve(faulty, data(), steps=STEPS, cost=COST)
    rates = [found.before.rate, found.after.rate]
    assert calls == [(side == 1, rates[side], seed, STEPS // 4) for side in (0, 1) for seed in (1, 2, 3)]
    wanted = {
        "changed and cooled": (OWN, cooled, max(test(OWN, changed), test(changed, cooled))),
        "changed": (OWN, changed, test(OWN, changed)),
        "cooled": (OWN, own_cooled, test(OWN, own_cooled)),
        "": (OWN, changed, test(OWN, changed)),
    }
    before, after, p = wanted[kept]
    assert found.race.before[:, -1].tolist() == list(before) and found.race.after[:, -1].tolist() == list(after)
    assert found.reading.p == pytest.approx(p, rel=1e-9) and (p < 0.05) == bool(kept)
    assert found.rate == rates["changed" in kept] and found.reading.is_proven == bool(found.changes) == bool(kept)
    names = [change.name for change in found.changes]
    assert (
        ("cool_down" in names)
        == ("cooled" in kept)
        == ("let the rate fall to zero over the last 20 of 80" in found.sentence.lower())
    )
    assert ("changed" in kept) == (len(names) > ("cooled" in kept)) and ("stays as it is" in found.sentence) == (
        not kept
    )
    told = [row["loss of its pilot"] for row in found.reading.rows() if not row["gradients"]]
    assert all(words.startswith("left out: ") for words in told), "what was raced was tried"
    assert any("a race does not prove it" in reason for reason in found.reading.left_out.values()) == (kept == "cooled")
    assert found.reading.cost == int(found.reading.costs.sum()) + 6 * (STEPS + STEPS // 4)
    assert from_json(to_json(found.reading)).sentence == found.sentence


@pytest.mark.parametrize("warm", [False, True])
def test_a_falling_rate_is_that_of_the_code_to_paste(warm):
    model, (inputs, targets), choice = network(1), data(64), clipped(optimizer_choice("adam"), 1.0)
    plan = tuple(c for c in changes_for(Patient(model, Batch(inputs, targets), None, 42, choice), "outputs")[0] if warm)
    plan = tuple(change for change in plan if change.name == "warm_up")
    trained = trained_with(choice, plan)
    asked = {"rate": 0.01, "steps": 42, "seed": 3, "first": 5}
    run = run_to_the_end(model, (inputs, targets), None, trained, **asked, last=10)
    alone = run_to_the_end(model, (inputs, targets), None, trained, **asked)
    assert torch.equal(run.losses, alone.losses) and not alone.cooled.numel(), "the second end leaves no trace"
    own, losses, rates = copy.deepcopy(model), [], []
    optimizer = torch.optim.Adam(own.parameters(), lr=0.01)
    pasted = {"optimizer": optimizer}
    for change in (*plan, cool_down(plan, 42, "")):
        exec(change.code, pasted)
    for _ in range(42):  # 64 samples are one batch
        loss = nn.functional.cross_entropy(own(inputs), targets)
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(own.parameters(), 1.0)
        rates.append(optimizer.param_groups[0]["lr"])
        optimizer.step()
        pasted["schedule"].step()
        losses.append(loss.item())
    assert rates == pytest.approx([0.01 * min(1, (42 - n) / 10, (n + 1) / 4 if warm else 1) for n in range(42)])
    assert run.cooled.tolist() == pytest.approx(losses, rel=1e-4)
    assert torch.equal(run.cooled[:33], run.losses[:33]) and not torch.equal(run.cooled[34:], run.losses[34:])


@pytest.mark.parametrize(("steps", "most"), [(70, 175), (99, 247), (400, 1000), (1000, 1000)])
def test_ten_trainings_are_enough(steps, most, monkeypatch):
    asked = SimpleNamespace(result=lambda: asked.cost)
    monkeypatch.setattr(
        sys.modules["skiplens.improvement.improve"], "_Work", lambda *given: vars(asked).update(cost=given[3]) or asked
    )
    assert sl.improve(network(1), data(), steps=steps) == most and most + race_cost(steps) <= 10 * steps
    assert race_cost(400) == 6 * 400 + 6 * 100


def test_where_all_pilots_stay_at_a_guess_readings_choose_who_gets_a_longer_one(monkeypatch):
    """In the place of pilots: short ones tell nothing, long ones that one change helps, which reads well too."""
    asked = []

    def forecast(model, data, *, cost, **named):
        best, same = "added_norm" in str(model), all(map(torch.equal, model.parameters(), faulty.parameters()))
        asked.append((cost, best, same))
        score = {0: 1.0 - best, 20: 2.0 if same else -0.1}.get(cost, -0.6 if best else 0.0)
        return SimpleNamespace(score=score, cost=cost, guess=1.0, first_loss=1.0)

    faulty = network(6)
    patient = Patient(faulty, Batch(*data(64)), None, STEPS, optimizer_choice("adam"))
    monkeypatch.setattr("skiplens.improvement.search.forecast", forecast)
    search = Search(patient, data(64), 0, 1000, silent, None, "")
    _, best = search.run(changes_for(patient, None)[0])
    assert best.name.endswith("_norms") and len([cost for cost, *_ in asked if cost == FULL]) > 4
    assert search.spent == sum(cost or READINGS for cost, *_ in asked) <= 1000
    assert all(tried.cost for tried in search.tried), "a reading is no pilot, and no row of the table"


def test_the_reading_is_kept_and_shown(better, tmp_path):
    again = from_json(to_json(better.reading))
    assert isinstance(again, Improvement) and again.sentence == better.sentence
    page = Report("deep", (better.reading, better.before)).write(tmp_path / "page")
    text = html.unescape(page.read_text("utf-8"))
    gain, change = better.sentence.split(": ", 1)  # the page tells the gain first, in large letters
    assert f">{gain}<" in text and change[1:] in text and better.code in text and "Show it as it was" in text


def test_before_and_after_are_drawn_from_what_layers_give(better, faulty):
    section = improvement_section(from_json(to_json(better.reading)))
    for model, drawing in ((faulty, section.drawing), (better.model, section.after)):
        value, sizes = data()[0][:DRAWN], []
        for layer in model:
            value = layer(value)
            sizes += [float(value.detach().square().mean().sqrt())] if isinstance(layer, nn.Linear) else []
        assert drawing.signal == pytest.approx(sizes, rel=1e-5)
    before = to_json(better.reading)
    del before["values"]["drawings"]  # as files of 0.2.0 from before the drawings are
    old = improvement_section(from_json(before))
    assert old.drawing is None and old.after is None and old.code == better.code


def test_each_change_is_told_its_share_of_the_gain(better):
    gains = torch.tensor([3.0, 1.0, -0.5], dtype=torch.float64)
    three = replace(better.reading, changes=("a", "b", "c"), reasons=("x", "y", "z"), gains=gains)
    assert three.shares == pytest.approx((0.75, 0.25, 0)) and ": a, b and c (3 pairs of trainings" in three.sentence
    notes = improvement_section(three).notes  # the verdict names the changes, in this order
    assert notes == (
        "Why the first, with 75 % of the gain: x.",
        "Why the second, with 25 % of the gain: y.",
        "Why the third, with 0 % of the gain: z.",
    )
    assert "share" not in improvement_section(better.reading).notes[0] or len(better.changes) > 1


def test_a_change_of_the_training_alone_leaves_a_copy(faulty, monkeypatch):
    run = run_to_the_end(network(1), data(64), None, optimizer_choice("sgd"), rate=0.05, steps=STEPS, seed=0)
    monkeypatch.setattr(sys.modules["skiplens.improvement.improve"], "run_to_the_end", lambda *given, **named: run)
    monkeypatch.setattr(Race, "is_proven", True)
    for margin in ("CLEARLY", "WORTH"):
        monkeypatch.setattr(f"skiplens.improvement.search.{margin}", -math.inf)  # any change is clearly better
    found = sl.improve(faulty, data(), steps=STEPS, cost=140, keep="outputs")
    assert found.changes and found.model is not faulty
    section = improvement_section(found.reading)
    assert section.drawing.signal and section.after is None, "drawn as it is and stays"
    assert all(torch.equal(a, b) for a, b in zip(faulty.parameters(), found.model.parameters(), strict=True))


def test_the_test_is_the_paired_t_test_of_the_field():
    generator = torch.Generator().manual_seed(0)
    before, after = torch.rand(4, 30, generator=generator) + 0.5, torch.rand(4, 30, generator=generator) + 0.3
    race = Race(before, after, (0.1, 0.1))
    ends = before[:, -3:].mean(1).log(), after[:, -3:].mean(1).log()
    assert race.p == pytest.approx(float(stats.ttest_rel(*ends, alternative="greater").pvalue), rel=1e-9)
    assert race.gain == pytest.approx(math.exp(float((ends[0] - ends[1]).mean())), rel=1e-6)


def test_how_far_one_run_diverged_does_not_drown_the_others():
    before = torch.tensor([[1.0] * 10, [1.1] * 10, [0.9] * 10])
    before[0, 5:] = math.inf
    after = torch.full((3, 10), 0.1)
    assert Race(before, after, (0.1, 0.1)).p > 0.1  # what it would be: one number of 1e12 among others of 1
    bounded = Race(before, after, (0.1, 0.1), guess=2.0)
    ends = torch.tensor([20.02, 1.12, 0.92]).log(), torch.full((3,), 0.12).log()  # 1 % of a guess added
    assert bounded.p == pytest.approx(float(stats.ttest_rel(*ends, alternative="greater").pvalue), rel=1e-5)
    assert bounded.is_proven


def test_a_run_that_learns_all_by_heart_does_not_drown_the_others():
    before, after = (torch.tensor([ends] * 40).T for ends in ([2.04, 2.04, 2.03], [0.176, 0.109, 0.0015]))
    race = Race(before, after, (0.1, 0.1), guess=2.3)
    differences = np.log(np.array([2.04, 2.04, 2.03]) + 0.023) - np.log(np.array([0.176, 0.109, 0.0015]) + 0.023)
    assert race.p == pytest.approx(stats.ttest_1samp(differences, 0, alternative="greater").pvalue, rel=1e-5)
    assert race.is_proven and not replace(race, guess=math.nan).is_proven
    assert race.gain == pytest.approx(replace(race, guess=math.nan).gain), "how much lower it ends is told as it is"
    assert not Race(after, before, (0.1, 0.1), guess=2.3).is_proven


def test_a_run_that_diverged_is_counted_and_marked_whether_its_file_says_nan_or_infinite():
    losses = torch.tensor([[2.0, 3.0, 5.0, 4.0], [2.0, 1.0, 0.5, 0.4]])
    for missing in (math.nan, math.inf):
        before = losses.clone()
        before[0, 2:] = missing
        race = Race(before, losses, (0.1, 0.2))
        assert race.ends[0].tolist() == [math.inf, pytest.approx(0.4)] and race.wins == 1
        (marked,) = (mark for mark in race_figure(race).marks if isinstance(mark, Points))
        assert marked.name == "✕ as it is: diverged on 1 of 2 seeds" and marked.x == (3.0,) and marked.y == (5.0,)


def test_a_curve_ends_where_its_last_run_diverged_and_is_cut_at_ten_guesses():
    before, after = torch.full((2, 20), 2.0), torch.full((2, 20), 50.0)
    before[0, 5:], before[1, 8:] = math.inf, math.inf
    figure = race_figure(Race(before, after, (0.1, 0.2)), guess=1.0)
    first, second = (mark for mark in figure.marks if isinstance(mark, Line))
    assert first.x[-1] == 9 and first.name == "as it is (rate 0.1)" and first.y[0] == pytest.approx(2)
    assert second.x[-1] == 20 and max(second.y) == pytest.approx(10) and second.name.endswith("above the drawing")
    (marked,) = (mark for mark in figure.marks if isinstance(mark, Points))
    assert marked.x == (6.0, 9.0) and marked.crossed and marked.colour == first.colour
    assert "ends at ten guesses" in figure.caption
    calm = race_figure(Race(torch.full((2, 20), 2.0), torch.full((2, 20), 1.0), (0.1, 0.2)), guess=1.0)
    assert "ten guesses" not in calm.caption


def test_a_run_is_the_training_that_anybody_would_write():
    model, (X, y) = network(1), data(64)
    run = run_to_the_end(model, (X, y), None, optimizer_choice("sgd"), rate=0.05, steps=6, seed=0)
    own = copy.deepcopy(model)
    optimizer, losses = torch.optim.SGD(own.parameters(), lr=0.05, momentum=0.9), []
    for _ in range(6):
        loss = nn.functional.cross_entropy(own(X), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert run.losses.tolist() == pytest.approx(losses, rel=1e-5)


def test_a_run_that_diverges_is_infinite_from_there():
    run = run_to_the_end(network(1), data(64), None, optimizer_choice("sgd"), rate=1e8, steps=40, seed=0)
    assert torch.isfinite(run.losses[0]) and torch.isinf(run.losses[-1])
    assert torch.isinf(run.losses).double().diff().ge(0).all()


def test_a_softmax_too_many_is_found_behind_another_fault(monkeypatch):
    """In the place of pilots: without a norm nothing learns, and many changes help a little."""

    def forecast(model, data, **asked):
        normed = "added_norm" in str(model)
        without = any(hook.__name__ == "_logarithms" for hook in model._forward_hooks.values())
        same = all(map(torch.equal, model.parameters(), faulty.parameters()))
        score = -3.0 if normed and without else -0.5 if normed else 0.0 if same else -0.3
        return SimpleNamespace(score=score, cost=20, guess=1.0, first_loss=1.0)

    faulty = nn.Sequential(*network(6), nn.Softmax(-1))
    patient = Patient(faulty, Batch(*data(64)), None, STEPS, optimizer_choice("adam"))
    monkeypatch.setattr("skiplens.improvement.search.forecast", forecast)
    search = Search(patient, data(64), 0, 1000, silent, None, "")
    _, best = search.run(changes_for(patient, None)[0])
    assert len(best.plan) == 2 and best.name.startswith("undo_softmax + ") and best.name.endswith("_norms")


def test_losses_of_pilots_are_told_where_there_is_no_guess(better):
    unknown = replace(better.reading, guess=math.nan, unit=2.0, scores=better.reading.scores * 0 + math.log(0.25))
    assert {row["loss of its pilot"] for row in unknown.rows() if row["gradients"]} == {"0.5"}


@pytest.mark.parametrize("cost", [140, 300, 600, 5000])
@pytest.mark.parametrize("changes", [1, 2, 8, 20])
def test_the_cost_is_kept(cost, changes):
    full, screen, tried = budget(cost, changes)
    assert 1 <= tried <= changes and 4 * full + (tried + 1) * screen <= cost
    assert screen >= min(LEAST, 14)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"keep": "all"}, "keep is 'all'"),
        ({"steps": 3}, "steps is 3"),
        ({"cost": 10}, "cost 10"),
        ({"loss": "nothing"}, "nothing"),
        ({"optimizer": "adm"}, "no optimizer 'adm'"),
    ],
)
def test_bad_input_is_one_sentence(change, words):
    with pytest.raises((InvalidInputError, ValueError), match=words):
        sl.improve(network(1), data(), **change)


@pytest.mark.parametrize("where", ["weights", "inputs"])
def test_what_is_no_number_is_refused(where):
    model, (inputs, targets) = network(1), data()
    (model[0].weight.data if where == "weights" else inputs)[0, 0] = math.nan
    batches = [(inputs[:128], targets[:128]), (inputs[128:], targets[128:])]
    with pytest.raises(InvalidInputError, match="NaN or infinite weights, or NaN inputs, which no change mends"):
        sl.improve(model, batches)


def test_too_few_samples_and_frozen_models_are_refused():
    with pytest.raises(InvalidInputError, match="The data has 31 samples; a race needs at least 32 to tell"):
        sl.improve(network(1), data(31))
    with pytest.raises(InvalidInputError, match="no parameter that a training would move, so none can be improved"):
        sl.improve(network(1).requires_grad_(False), data())


@pytest.mark.filterwarnings("ignore:.*:DeprecationWarning", "ignore:torch.quantize_per_tensor:UserWarning")
def test_scripted_and_quantised_models_are_refused_with_what_to_do():
    with pytest.raises(InvalidInputError, match=r"scripted.*Hand in the nn\.Module"):
        sl.improve(torch.jit.script(network(1)), data())
    quantised = torch.ao.quantization.quantize_dynamic(network(1), {nn.Linear})
    words = r"weights of 0, 2, 4 are quantised and there are no others.*Improve the network before it is quantised"
    with pytest.raises(InvalidInputError, match=words):
        sl.improve(quantised, data())


def test_what_no_pilot_was_spent_on_is_told_with_its_reason(better, faulty, monkeypatch):
    answers = 2 * [replace(better.before, cost=10)]  # as it is, twice; then every change fails

    def forecast(model, data, **asked):
        if answers:
            return answers.pop()
        raise InvalidInputError("All is dark.\nAnd long.")

    monkeypatch.setattr("skiplens.improvement.search.forecast", forecast)
    found = sl.improve(faulty, data(), steps=STEPS, cost=140)
    reasons = set(found.reading.left_out.values())
    assert unchanged(found, faulty) and "the cost does not allow one more pilot" in reasons
    assert "the change cannot be made or judged here: All is dark." in reasons
    assert {row["change"] for row in found.reading.rows()} >= set(found.reading.left_out)
    with pytest.raises(InvalidInputError, match=r"No forecast of the network is possible: .*All is dark\."):
        sl.improve(faulty, data(), steps=STEPS, cost=140)
