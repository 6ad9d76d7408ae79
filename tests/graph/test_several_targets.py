"""Several targets of each sample, and losses that models return themselves."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader

import skiplens as sl
from skiplens.base.errors import InvalidInputError
from skiplens.graph.batch import Labelled, as_batch, several_of, take
from skiplens.graph.lens import HANDED, RETURNED, SUMMED, with_targets
from skiplens.task.reading import TaskReading
from tests.networks import Formula, drawn, linear, noise

KINDS, SIZES = torch.arange(8) % 3, noise(8, 2, 2)
FORMS = {"dict": {"kind": KINDS, "size": SIZES}, "tuple": (KINDS, SIZES), "list": [KINDS, SIZES]}


def heads(m, x):
    x = x + torch.tanh(m.f(x))
    kind, size = m.kind(x), m.size(x).view(-1, 2, 2)
    return {"size": size, "kind": kind} if m.named else (kind, size)


def two_heads(named):
    model = drawn(Formula(heads, f=linear(4, 4), kind=linear(4, 3), size=linear(4, 4)))
    model.named = named
    return model


def expected(model, inputs):
    """The sum of cross-entropy and mean square, by hand."""
    x = inputs + torch.tanh(model.f(inputs))
    squares = (model.size(x).view(-1, 2, 2) - SIZES).square()
    return (F.cross_entropy(model.kind(x), KINDS) + squares.mean()).item()


@pytest.mark.parametrize("form", FORMS)
def test_several_targets_come_apart_as_they_were(form):
    batch = as_batch((noise(8, 4), FORMS[form]))
    for changed, rows in ((batch, slice(None)), (batch.first(3), slice(3)), (take([batch, batch], 16), slice(8))):
        apart = several_of(changed).apart(changed.targets)
        kinds, sizes = apart.values() if form == "dict" else apart
        assert torch.equal(kinds[rows][:8], KINDS[rows]) and kinds.dtype == torch.int64
        assert torch.equal(sizes[rows][:8], SIZES[rows])


@pytest.mark.parametrize("form", FORMS)
def test_the_loss_of_several_targets_is_the_sum_of_theirs(form):
    model, inputs = two_heads(form == "dict"), noise(8, 4)
    report = sl.inspect(model, (inputs, FORMS[form]), lenses=["task", "curvature", "tangent"])
    assert report.problems == () and SUMMED.format(count=2) in str(report.readings[0].notes)
    assert report.reading(TaskReading).loss == pytest.approx(expected(model, inputs))


def test_a_list_of_numbers_is_one_target():
    assert torch.equal(as_batch((noise(8, 4), KINDS.tolist())).targets, KINDS)


def test_a_loss_of_ones_own_gets_them_as_they_came():
    def loss(outputs, targets):
        assert targets["kind"].dtype == torch.int64
        return F.cross_entropy(outputs["kind"], targets["kind"]) + F.l1_loss(outputs["size"], targets["size"])

    rows = [(x, {"kind": kind, "size": size}) for x, kind, size in zip(noise(8, 4), KINDS, SIZES, strict=True)]
    model, loader = two_heads(True), DataLoader(rows, batch_size=4)
    inputs = noise(8, 4)
    reading = sl.inspect(model, loader, loss=loss, lenses=["task"]).reading(TaskReading)
    assert reading.loss == pytest.approx(loss(model(inputs), FORMS["dict"]).item())
    assert sl.forecast(model, loader, loss=loss, steps=20, cost=14).first_loss > 0
    assert len(sl.rank({"one": model, "two": two_heads(True)}, loader, loss=loss, steps=20, cost=14)) == 2


def test_several_targets_that_fit_nothing_say_what_to_do():
    three = (KINDS, SIZES, KINDS)
    report = sl.inspect(two_heads(False), (noise(8, 4), three), lenses=["task"])
    assert "3 targets (0, 1, 2) and the model returns 2 tensors (0, 1). Hand over loss=" in report.problems[0].message
    with pytest.raises(InvalidInputError, match=r"several targets for each sample, and this takes one tensor.*cat"):
        sl.hessian_spectrum(two_heads(False), (noise(8, 4), (KINDS, SIZES)), loss="mse")
    with pytest.raises(InvalidInputError, match="targets as a tuple of 2; wanted one tensor, or several with"):
        as_batch((noise(8, 4), (KINDS, SIZES[:3])))


class Positions(nn.Module):
    """As for the questions of Hugging Face: targets under names of their own, and the loss among the outputs."""

    def __init__(self):
        super().__init__()
        self.f, self.h = linear(4, 4), linear(4, 2)

    def forward(self, inputs, start_positions=None, end_positions=None):
        start, end = self.h(inputs + torch.tanh(self.f(inputs))).unbind(-1)
        out = {"start_logits": start, "end_logits": end}
        if start_positions is None:
            return out
        return {"loss": F.cross_entropy(start, start_positions) + F.cross_entropy(end, end_positions), **out}


def test_the_loss_that_a_model_returns_is_taken_where_there_are_no_targets():
    model = drawn(Positions())
    data = {"inputs": noise(8, 5, 4), "start_positions": torch.arange(8) % 5, "end_positions": torch.arange(8) % 4}
    report = sl.inspect(model, data, lenses=["layers", "task", "curvature"])
    assert report.problems == () and RETURNED in report.readings[0].notes
    assert report.reading(TaskReading).loss == pytest.approx(model(**data)["loss"].item())
    assert sl.forecast(model, data, steps=20, cost=14).first_loss == pytest.approx(model(**data)["loss"].item())


class Asks(nn.Module):
    """It cannot be called without the tokens that it is to tell, and shifts them itself."""

    def __init__(self):
        super().__init__()
        self.words, self.h = nn.Embedding(9, 4), linear(4, 9)

    def forward(self, input_ids, labels):
        scores = self.h(self.words(input_ids))
        return {"loss": F.cross_entropy(scores[:, :-1].flatten(0, 1), labels[:, 1:].flatten()), "logits": scores}


class Decodes(nn.Module):
    """An encoder with a decoder whose inputs are made from the labels, as by those of Hugging Face."""

    def __init__(self):
        super().__init__()
        self.words, self.h = nn.Embedding(9, 4), linear(4, 9)

    def prepare_decoder_input_ids_from_labels(self, labels):
        return labels.roll(1, 1)

    def forward(self, input_ids, decoder_input_ids=None):
        assert torch.equal(decoder_input_ids[:, 1:], (input_ids[:, :-1] + 1) % 9)
        return self.h(self.words(decoder_input_ids))


def test_every_verb_makes_the_inputs_of_a_decoder_from_the_labels():
    tokens = torch.arange(48).reshape(8, 6) % 9
    data, models = (
        {"input_ids": tokens, "labels": (tokens + 1) % 9},
        {"one": drawn(Decodes()), "two": drawn(Decodes(), 1)},
    )
    assert sl.inspect(models["one"], data, lenses=["task"]).problems == ()
    assert sl.forecast(models["one"], data, steps=20, cost=14).first_loss > 0
    assert not sl.rank(models, data, steps=20, cost=14).failed
    assert sl.compare(models, data, lenses=["task"]).problems == ()


def test_labels_that_a_model_asks_for_stay_as_they_came_when_a_batch_is_cut():
    tokens = torch.arange(48).reshape(8, 6) % 9
    batch = as_batch({"input_ids": tokens, "labels": tokens})
    for cut in (batch.first(4), take([batch, batch], 4)):
        assert isinstance(cut.inputs, Labelled) and torch.equal(cut.inputs.labels, tokens[:4])
    data, _, told = with_targets(Asks(), batch.first(4))
    assert told == (HANDED.format(name="labels"),)
    assert torch.equal(next(iter(data)).inputs["labels"], tokens[:4])
    models = {"one": drawn(Asks()), "two": drawn(Asks(), 1)}
    assert sl.compare(models, batch, lenses=["task"]).problems == ()


def test_a_generator_of_several_targets_is_refused_by_a_forecast_with_what_to_do():
    with pytest.raises(InvalidInputError, match="several targets"):
        sl.forecast(two_heads(False), iter([(noise(8, 4), (KINDS, SIZES))]), steps=20, cost=14)
