"""Improving from outside: networks whose fault is known get better, healthy ones stay, bad input is one sentence."""

import copy
import html
import inspect
import math
import sys
from dataclasses import replace

import numpy as np
import pytest
import torch
from scipy import stats
from torch import nn

import skiplens as sl
from skiplens.base.errors import InvalidInputError
from skiplens.improvement.improve import DRAWN, SEEDS, further_rates, race_cost
from skiplens.improvement.race import Race, RacedRun, race_figure, run_to_the_end
from skiplens.improvement.reading import Improvement
from skiplens.improvement.report import improvement_section
from skiplens.improvement.search import LEAST, budget
from skiplens.plots.figure import Line, Points
from skiplens.readings.file import from_json, to_json
from skiplens.readings.reading import Provenance
from skiplens.report import Report
from skiplens.trainability.optimizers import optimizer_choice

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
    pasted = {"model": copy.deepcopy(faulty), "inputs": inputs}
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
    assert not pilots and len(calls) == 3 + 2 * SEEDS - 2 + 1
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


def test_where_nothing_promises_more_the_network_stays_as_it_is(monkeypatch):
    monkeypatch.setattr("skiplens.improvement.search.CLEARLY", math.inf)  # no change is ever clearly better
    model = network(1)
    found = sl.improve(model, data(), steps=STEPS, cost=COST, keep="outputs")
    assert unchanged(found, model) and found.race is None and "as well as anything tried" in found.sentence
    assert found.sentence.endswith("keep='architecture' would try other starts too.")
    assert found.reading.left_out["another start"] == "keep='outputs' does not allow it"


def test_what_the_race_does_not_prove_is_not_changed(faulty, monkeypatch):
    alike = run_to_the_end(network(1), data(64), None, optimizer_choice("sgd"), rates=(0.05,), steps=STEPS, seed=0)
    monkeypatch.setattr(sys.modules["skiplens.improvement.improve"], "run_to_the_end", lambda *given, **named: alike)
    found = sl.improve(faulty, data(), steps=STEPS, cost=COST)
    assert unchanged(found, faulty) and found.race.gain == 1 and "Not proven" in found.sentence


@pytest.mark.parametrize(
    ("own", "further", "taken"),
    [
        (0.2, (0.1, 0.3), 1),  # the first of the others is better
        (0.2, (0.3, 0.1), 2),
        (0.2, (0.3, 0.4), 0),  # the rate of the pilot is the best
        (1.99, (0.1, 0.1), None),  # not proven at the rates of the pilots, so no other one is tried
        (0.2, (math.inf, 0.1), 2),
    ],
)
def test_what_is_proven_at_the_rates_of_the_pilots_is_tried_at_two_more(faulty, monkeypatch, own, further, taken):
    """In the place of trainings: losses with a jitter of their own, lower where the network was changed."""
    calls = []

    def ended(model, *given, rates, steps, seed, **named):
        changed = not torch.equal(next(model.parameters()), next(faulty.parameters()))
        calls.append((changed, rates, seed))
        ends = dict(zip(rates, further, strict=True)) if len(rates) > 1 else {rates[0]: own if changed else 2.0}
        rate = min(ends, key=ends.get)
        jitter = 1 + 0.01 * seed if changed else 1 + 0.02 * (seed % 2)
        provenance = Provenance.begin({}, 0, "cpu").end()
        return RacedRun(losses=torch.full((steps,), ends[rate] * jitter).double(), rate=rate, provenance=provenance)

    monkeypatch.setattr(sys.modules["skiplens.improvement.improve"], "run_to_the_end", ended)
    found = sl.improve(faulty, data(), steps=STEPS, cost=COST)
    rates = [found.before.rate, found.after.rate]
    pairs = [(side == 1, (rates[side],), seed) for side in (0, 1) for seed in (1, 2, 3)]
    assert calls[:6] == pairs and found.race.rates == tuple(rates), "each at the rate of its own pilot"
    before = np.log([2 * (1 + 0.02 * (seed % 2)) for seed in (1, 2, 3)])
    after = np.log([own * (1 + 0.01 * seed) for seed in (1, 2, 3)])
    wanted = float(stats.ttest_rel(before, after, alternative="greater").pvalue)
    assert found.race.p == pytest.approx(wanted, rel=1e-9), "what is chosen later is no part of the test"
    spent = int(found.reading.costs.sum()) + 6 * STEPS
    if taken is None:
        assert len(calls) == 6 and not found.changes and found.reading.cost == spent
        assert math.isnan(found.reading.best_rate) and found.rate == found.before.rate
        return
    assert calls[6:] == [(True, calls[6][1], 1)] and rates[1] not in calls[6][1] and len(set(calls[6][1])) == 2
    assert found.rate == (rates[1], *calls[6][1])[taken]
    assert found.reading.best_loss == pytest.approx(1.01 * (own, *further)[taken])
    assert found.reading.cost == spent + STEPS + STEPS // 4
    assert ("from the first seed" in found.sentence) == (taken > 0)
    again = from_json(to_json(found.reading))
    assert (again.best_rate, again.best_loss) == (found.reading.best_rate, found.reading.best_loss)


def test_the_rates_that_are_tried_later_went_furthest_and_came_lowest(better):
    nan = math.nan
    losses = [[9, 1, nan, nan], [9, 5, 4, nan], [9, 5, 3, nan], [9, 2, 1, 0.5], [9, 1e9, nan, nan], [9, nan, nan, nan]]
    found = replace(better.before, tried=(1.0, 2.0, 3.0, 4.0, 5.0, 6.0), losses=torch.tensor(losses), rate=2.0)
    assert further_rates(found) == (4.0, 3.0)
    assert further_rates(replace(found, rate=4.0)) == (3.0, 2.0)
    assert further_rates(replace(found, tried=(4.0,), losses=torch.tensor(losses[3:4]), rate=4.0)) == ()


def test_of_several_rates_the_one_ahead_after_a_quarter_goes_on():
    model, source = network(1), data(64)
    alone = {
        rate: run_to_the_end(model, source, None, optimizer_choice("sgd"), rates=(rate,), steps=40, seed=3)
        for rate in (1e-4, 0.05, 1e8)
    }
    for rates in [(1e-4, 0.05), (0.05, 1e-4), (1e8, 0.05, 1e-4), (1e8, 1e-4)]:
        run = run_to_the_end(model, source, None, optimizer_choice("sgd"), rates=rates, steps=40, seed=3)
        best = min(rates, key=lambda rate: float(alone[rate].losses[8:10].mean()))
        assert run.rate == best and torch.equal(run.losses, alone[best].losses), "as if it were alone"


def test_ten_trainings_are_enough():
    asked = inspect.signature(sl.improve).parameters
    cost, steps = asked["cost"].default, asked["steps"].default
    assert cost + race_cost(steps) <= 10 * steps
    assert race_cost(400) == 6 * 400 + 400 + 100


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
    assert three.shares == pytest.approx((0.75, 0.25, 0)) and three.sentence.startswith("A, b and c: the loss ends")
    assert improvement_section(three).notes[0] == "A, because x. Its share of the gain: 75 %."
    assert "share" not in improvement_section(better.reading).notes[0] or len(better.changes) > 1


def test_a_change_of_the_training_alone_leaves_a_copy(faulty, monkeypatch):
    run = run_to_the_end(network(1), data(64), None, optimizer_choice("sgd"), rates=(0.05,), steps=STEPS, seed=0)
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
    bounded = Race(before, after, (0.1, 0.1), ceiling=20.0)
    ends = torch.tensor([20.0, 1.1, 0.9]).log(), torch.full((3,), 0.1).log()
    assert bounded.p == pytest.approx(float(stats.ttest_rel(*ends, alternative="greater").pvalue), rel=1e-5)
    assert bounded.is_proven


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


def test_a_run_is_the_training_that_anybody_would_write():
    model, (X, y) = network(1), data(64)
    run = run_to_the_end(model, (X, y), None, optimizer_choice("sgd"), rates=(0.05,), steps=6, seed=0)
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
    run = run_to_the_end(network(1), data(64), None, optimizer_choice("sgd"), rates=(1e8,), steps=40, seed=0)
    assert torch.isfinite(run.losses[0]) and torch.isinf(run.losses[-1])
    assert torch.isinf(run.losses).double().diff().ge(0).all()


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
