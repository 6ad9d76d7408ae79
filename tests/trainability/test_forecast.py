"""The forecast from outside: what it says of networks whose fate is known, and of bad input."""

import copy
import math
from dataclasses import replace

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import skiplens as sl
from skiplens.base.errors import InvalidInputError, TooLargeError
from skiplens.base.randomness import Randomness
from skiplens.graph.batch import Batch, as_batch
from skiplens.graph.lens import Subject
from skiplens.plots.figure import Band
from skiplens.readings.file import from_json, to_json
from skiplens.task.measure import measure_task
from skiplens.trainability import extrapolation
from skiplens.trainability.forecast import Outlook, comes_down, forecast, guess_of
from skiplens.trainability.pilot import Pilot, Trial
from skiplens.trainability.ranking import _deviation
from skiplens.trainability.reading import DIVERGES, NOT_AT_ALL, SLOWLY, TRAINS, word_for
from skiplens.trainability.report import ForecastLens, expected_curve, forecast_section
from tests.budget_calls import least_memory
from tests.networks import noise

SAMPLES, FEATURES, CLASSES = 256, 12, 3


def blobs(samples=SAMPLES):
    generator = torch.Generator().manual_seed(0)
    centres = 3 * torch.randn(CLASSES, FEATURES, generator=generator)
    targets = torch.arange(samples) % CLASSES
    return centres[targets] + torch.randn(samples, FEATURES, generator=generator), targets


def small(width=16):
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(FEATURES, width), nn.ReLU(), nn.Linear(width, CLASSES))


class Constant(nn.Module):
    """Its answer does not depend on what it is asked."""

    def __init__(self):
        super().__init__()
        self.answer = nn.Parameter(torch.zeros(CLASSES))

    def forward(self, x):
        return self.answer.expand(len(x), -1)


class ByName(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = small()

    def forward(self, left, right):
        return self.inner(left + right)


@pytest.fixture(scope="module")
def good():
    return sl.forecast(small(), blobs())


def test_a_network_that_learns_is_told_from_one_that_cannot(good):
    bad = sl.forecast(Constant(), blobs())
    assert good.score < bad.score
    assert good.loss < bad.loss
    assert bad.word == NOT_AT_ALL
    assert bad.guess == pytest.approx(math.log(CLASSES), rel=0.05)


def test_everything_it_says_hangs_together(good):
    low, high = good.interval
    assert low < good.loss < high
    smallest, largest = good.rates
    assert smallest <= good.rate <= largest
    assert good.rate in good.tried
    assert len(good.curve) == good.steps == 400
    assert good.curve[-1] == pytest.approx(good.loss)
    assert bool((good.curve[100:].diff() <= 1e-6).all())
    assert good.cost <= 70
    assert good.word == word_for(good.loss / good.guess)
    assert str(good) == good.sentence
    assert f"{good.rate:.2g}" in good.sentence and good.word.capitalize() in good.sentence


def test_one_batch_that_is_learnt_by_heart_ends_within_an_interval_that_is_open_below():
    inputs, targets = (tensor[:24] for tensor in blobs())
    model = small()
    found = sl.forecast(model, (inputs, targets))
    assert found.interval[0] == 0.0 and "(0 to " in found.sentence
    optimizer = torch.optim.Adam(model.parameters(), lr=found.rate)
    for _ in range(found.steps):
        optimizer.zero_grad()
        loss = F.cross_entropy(model(inputs), targets)
        loss.backward()
        optimizer.step()
    assert loss.item() <= found.interval[1]
    band = next(mark for mark in expected_curve(found).marks if isinstance(mark, Band))
    assert min(band.low) > 0  # on a logarithmic axis


def test_how_sure_an_order_is_comes_from_the_side_above_where_the_interval_is_open_below(good):
    closed = replace(good, interval=(good.loss / 3, 3 * good.loss))
    assert _deviation(replace(good, interval=(0.0, 3 * good.loss))) == pytest.approx(_deviation(closed), rel=1e-12)
    assert _deviation(closed) == pytest.approx(math.log(9) / (2 * 1.645))


def test_a_file_keeps_it(good):
    again = from_json(to_json(good))
    assert again.sentence == good.sentence
    assert torch.equal(again.curve, good.curve)
    bad = sl.forecast(Constant(), blobs())
    assert from_json(to_json(bad)).cause == bad.cause


def test_the_model_stays_as_it_was():
    model, state = small(), torch.get_rng_state()
    before = copy.deepcopy(model.state_dict())
    model.eval()
    sl.forecast(model, blobs())
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    assert torch.equal(torch.get_rng_state(), state)
    assert not model.training and all(parameter.grad is None for parameter in model.parameters())


@pytest.mark.parametrize("cost", [0, 14, 20, 70, 200])
def test_no_more_is_spent_than_asked(cost):
    found = sl.forecast(small(), blobs(), cost=cost)
    assert found.cost <= cost
    assert found.cost >= cost - 7
    assert math.isfinite(found.score) and found.word


def test_without_a_step_there_is_no_rate():
    found = sl.forecast(small(), blobs(), cost=0)
    facts = dict(forecast_section(found).facts)
    assert "nan" not in facts.values() and not {"rate to use", "rates that work"} & facts.keys()
    assert math.isnan(found.rate) and not found.tried
    assert "without a step" in found.sentence


def test_what_can_be_told_without_a_step_is_told_before_the_first_one():
    told = []
    taken = sl.forecast(small(), blobs(), progress=lambda label, done, total: told.append(label))
    assert told[:2] == [sl.forecast(small(), blobs(), cost=0).sentence, "pilot"]
    assert taken.sentence not in told


def test_every_form_of_data():
    inputs, targets = blobs()
    loader = DataLoader(TensorDataset(inputs, targets), batch_size=64)
    listed = list(zip(inputs.split(64), targets.split(64), strict=True))
    from_list = sl.forecast(small(), listed)
    assert sl.forecast(small(), loader).loss == from_list.loss
    assert sl.forecast(small(), iter(listed)).loss == from_list.loss
    named = [({"left": x / 2, "right": x / 2}, y) for x, y in listed]
    assert sl.forecast(ByName(), named).loss == pytest.approx(from_list.loss, rel=1e-3)


def test_one_batch_is_told():
    inputs, targets = blobs(32)
    assert "one batch only" in sl.forecast(small(), (inputs, targets)).notes[0]
    assert "one batch only" in sl.forecast(small(), [(inputs, targets)]).notes[0]
    assert not sl.forecast(small(), blobs()).notes


def test_dropout_batch_norm_own_loss_and_regression():
    torch.manual_seed(0)
    inputs, _ = blobs()
    model = nn.Sequential(nn.Linear(FEATURES, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Dropout(0.1), nn.Linear(16, 1))
    targets = inputs[:, :1] * 2
    squared = sl.forecast(model, (inputs, targets))
    own = sl.forecast(model, (inputs, targets), loss=lambda outputs, wanted: (outputs - wanted).abs().mean())
    assert squared.guess == pytest.approx(float(targets[:64].var(unbiased=False)), rel=0.5)
    assert math.isfinite(own.loss)


def test_a_loss_that_adds_up_over_samples_is_known_as_one():
    """Parts of a batch have a quarter of such a loss; the forecast must not take that for progress."""
    mean = sl.forecast(small(), blobs(), loss=lambda outputs, wanted: F.cross_entropy(outputs, wanted))
    added = sl.forecast(
        small(), blobs(), loss=lambda outputs, wanted: F.cross_entropy(outputs, wanted, reduction="sum")
    )
    assert added.guess == pytest.approx(64 * mean.guess, rel=0.05)  # of a batch
    torch.testing.assert_close(added.losses / 64, mean.losses, rtol=1e-2, atol=1e-3, equal_nan=True)  # Adam's epsilon
    assert (added.rate, added.word) == (mean.rate, mean.word)
    stuck = sl.forecast(
        Constant(), blobs(), loss=lambda outputs, wanted: F.cross_entropy(outputs, wanted, reduction="sum")
    )
    assert stuck.word == NOT_AT_ALL


def test_a_network_that_is_no_number_diverges():
    model = small()
    with torch.no_grad():
        model[0].weight[0, 0] = math.nan
    found = sl.forecast(model, blobs())
    assert found.word == DIVERGES
    assert found.cause is not None and "NaN" in found.cause.sentence
    assert found.score > sl.forecast(Constant(), blobs()).score


@pytest.mark.parametrize(
    ("level", "word"), [(0.1, TRAINS), (0.25, TRAINS), (0.3, SLOWLY), (0.95, NOT_AT_ALL), (math.inf, DIVERGES)]
)
def test_words(level, word):
    assert word_for(level) == word


@pytest.mark.parametrize(
    ("name", "wrong", "words"),
    [
        ("data", lambda: (blobs()[0], blobs()[1] + 1), "targets run from"),
        ("model", lambda: small().requires_grad_(False), "no parameter that a training would move"),
        ("loss", lambda: lambda outputs, targets: outputs, "wanted one number"),
        ("loss", lambda: "cross", "no loss called 'cross'"),
        ("optimizer", lambda: lambda parameters: 1 / 0, "cannot be made"),
        ("optimizer", lambda: "adan", "no optimizer"),
        ("steps", lambda: 0, "at least 1 step"),
        ("cost", lambda: 5, "a cost of 0 or at least"),
        ("model", lambda: 3, "torch.nn.Module instance was wanted"),
        ("data", lambda: blobs()[0], "needs targets"),
        ("data", lambda: [], "no batches"),
        ("data", lambda: (blobs()[0][:, :3], blobs()[1]), "cannot be called with these inputs"),
    ],
)
def test_bad_input_is_one_sentence(name, wrong, words):
    asked = {"model": small(), "data": blobs(), name: wrong()}
    with pytest.raises(InvalidInputError, match=words):
        sl.forecast(asked.pop("model"), asked.pop("data"), **asked)


def test_labels_out_of_range_in_a_later_batch():
    inputs, targets = blobs()
    listed = [(inputs[:64], targets[:64]), (inputs[64:128], targets[64:128] + 7)]
    with pytest.raises(InvalidInputError, match="targets run from"):
        sl.forecast(small(), listed)


def test_rank_puts_the_better_one_first():
    ranking = sl.rank({"constant": Constant(), "small": small()}, blobs())
    assert [place.name for place in ranking] == ["small", "constant"]
    assert ranking.best.name == "small"
    assert ranking[0].ahead > 0
    assert math.isnan(ranking[1].ahead)
    assert [row["place"] for row in ranking.rows()] == [1, 2]
    assert str(ranking).splitlines()[0].startswith("1. small: ")


def test_what_cannot_be_judged_is_told_and_the_others_are_ranked():
    ranking = sl.rank({"wrong": small().requires_grad_(False), "small": small()}, blobs())
    assert len(ranking) == 1 and "no parameter" in ranking.failed["wrong"]
    with pytest.raises(InvalidInputError, match="None of the networks"):
        sl.rank({"wrong": small().requires_grad_(False)}, blobs())
    with pytest.raises(InvalidInputError, match="by name"):
        sl.rank([small()], blobs())


def test_the_stored_fits_know_their_features():
    for kind in ("steps", "readings"):
        fit = extrapolation.fit_for(kind)
        assert len(fit.names) == len(fit.weights) == len(fit.centres) == len(fit.scales)
        assert (fit.low <= 0).all() and (fit.high >= 0).all()
        assert (fit.edges[1:] >= fit.edges[:-1]).all()


def test_the_guess_from_one_batch_is_that_of_all_samples_on_average():
    shares = torch.tensor([0.4, 0.3, 0.2, 0.1])
    true = float(-(shares * shares.log()).sum())
    torch.manual_seed(0)
    model, inputs = nn.Linear(2, 4), torch.randn(32, 2)
    found = []
    for _ in range(200):
        batch = as_batch((inputs, torch.multinomial(shares, 32, replacement=True)))
        found.append((guess_of(measure_task(model, batch), batch), measure_task(model, batch).guess))
    corrected, plain = (torch.tensor(values) for values in zip(*found, strict=True))
    error = float(corrected.std()) / math.sqrt(len(corrected))
    assert abs(float(corrected.mean()) - true) < 3 * error
    assert abs(float(plain.mean()) - true) > 3 * error  # what is corrected


def test_one_small_batch_is_all_there_is_so_its_own_guess_counts():
    """The share of a batch that a constant answer explains was taken for learning: a dead network was said to train."""
    targets = torch.tensor([0, 0, 0, 0, 1, 1, 2, 0])
    shares = targets.bincount() / len(targets)
    found = sl.forecast(Constant(), (noise(8, FEATURES, dtype=torch.get_default_dtype()), targets))
    assert found.guess == pytest.approx(float(-(shares * shares.log()).sum()), rel=1e-3)
    assert found.word == NOT_AT_ALL and "work)" not in found.sentence


def test_a_lens_that_could_try_two_steps_a_rate_says_nothing():
    inputs, targets = blobs(16)
    few, enough, costly = (
        Subject(small(), Batch(inputs[:n], targets[:n]), "costly", allowed=14 * 3 * 16 * 100 / 2 / times, counted=100.0)
        for n, times in ((15, 2), (16, 4), (16, 5))
    )
    assert ForecastLens()(enough, Randomness(0)).cost <= 14
    for subject, times in ((few, 2), (costly, 5)):
        told = f"fewest steps that tell something, 14 with 16 samples each, are {times} times what a forecast may take"
        with pytest.raises(TooLargeError, match=told):
            ForecastLens()(subject, Randomness(0))


def test_a_pilot_that_saw_little_but_the_way_down_says_so_and_the_lens_goes_on():
    torch.manual_seed(0)
    layers, further = [nn.Linear(FEATURES, FEATURES) for _ in range(20)], "cost=140 sees further."
    far = nn.Sequential(*(part for layer in layers for part in (layer, nn.ReLU())), nn.Linear(FEATURES, 3))
    for parameter in far.parameters():
        parameter.data.mul_(8)
    told = sl.forecast(far, blobs())
    assert told.is_bad and told.notes[-1].endswith(further) and told.provenance.settings["cost"] == 70
    assert not any(further in note for note in sl.forecast(small(), blobs()).notes)
    for guess in (0.0, -1.0, math.nan):  # no loss is so many times these
        assert not comes_down(replace(told, guess=guess))
    batch = Batch(*blobs())
    for model, steps, cost in ((far, 210, 140), (far, 209, 70), (small(), 210, 70)):
        allowed = steps * 3 * batch.samples * 100 / 2
        found = ForecastLens()(Subject(model, batch, "far", allowed=allowed, counted=100.0), Randomness(0))
        assert found.provenance.settings["cost"] == cost and cost * 0.9 < found.cost <= cost


@pytest.mark.parametrize("loss", [None, lambda scores, targets: F.cross_entropy(scores, targets)])
def test_a_loss_that_begins_huge_does_not_hide_the_guess(loss):
    model = small()
    with torch.no_grad():
        model[2].weight.mul_(1e11)
    found = sl.forecast(model, blobs(), loss=loss, cost=20)
    assert found.first_loss > 1e9 and found.guess == pytest.approx(math.log(3), rel=0.02)


def test_targets_that_are_all_the_same_leave_no_guess():
    inputs, _ = blobs()
    assert sl.forecast(small(), (inputs, torch.full((len(inputs), 3), 2.0)), cost=20).guess == 0


def test_a_batch_in_pieces_gives_the_same_forecast():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 3)).double()
    generator = torch.Generator().manual_seed(1)
    data = [(torch.randn(10, 6, generator=generator), torch.randint(3, (10,), generator=generator)) for _ in range(3)]
    whole = forecast(model, data, cost=20)
    least = least_memory(lambda memory: forecast(model, data, cost=20, memory=memory))
    with pytest.raises(TooLargeError, match=f"a step of the training: the least that does is {least} "):
        forecast(model, data, cost=20, memory=least - 1)
    found = forecast(model, data, cost=20, memory=least)  # a sample at a time
    torch.testing.assert_close(
        found.losses, whole.losses, rtol=1e-6, atol=0, equal_nan=True
    )  # rounding grows with steps
    assert found.loss == pytest.approx(whole.loss, rel=1e-4) and found.word == whole.word


def test_a_batch_whose_samples_depend_on_each_other_is_not_cut():
    model = nn.Sequential(nn.Linear(6, 8), nn.BatchNorm1d(8), nn.Linear(8, 3)).double().eval()
    data = (torch.randn(10, 6), torch.arange(10) % 3)
    least = least_memory(lambda memory: forecast(model, data, cost=20, memory=memory))
    assert least > least_memory(lambda memory: forecast(model, data, cost=0, memory=memory))
    found, free = forecast(model, data, cost=20, memory=least), forecast(model, data, cost=20)
    torch.testing.assert_close(found.losses, free.losses, rtol=1e-12, atol=0, equal_nan=True)


def test_no_loss_is_forecast_below_what_a_softmax_leaves():
    inputs = torch.randn(32, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    model = nn.Sequential(nn.Linear(4, 16), nn.Tanh(), nn.Linear(16, 3), nn.Softmax(1)).double()
    found = forecast(model, (inputs, inputs[:, :3].argmax(1)))
    least = math.log(1 + 2 / math.e)
    assert found.loss >= least and found.interval[0] >= least and float(found.curve.min()) >= least
    assert found.loss / found.guess > 0.3 and found.word != "trains"


def test_losses_far_above_a_guess_are_not_extrapolated_to_a_training():
    """With some batches at a loss of zero and others at millions the mean of logarithms says nothing."""
    trial = Trial(0.1, [1e9, 1e7, 0.0, 1e7, 0.0, 1e6, 0.0, 1e6] * 8)
    outlook = Outlook(Pilot((trial,), 0), extrapolation.Situation(1.0, 1.0), 400)
    assert outlook.fields()["word"] == "does not train" and outlook.fields()["loss"] > 1e5
