import pytest
import torch
from torch import nn

import skiplens as sl
from skiplens.base.errors import InvalidInputError, TooLargeError
from skiplens.graph.batch import Batch
from skiplens.graph.lens import OPERATIONS, prepared, require_room
from skiplens.graph.loss import LossFunction
from skiplens.report.lenses import LENSES
from tests.networks import drawn
from tests.tolerances import assert_close


def pair(dtype=torch.float64):
    return torch.randn(6, 3, generator=torch.Generator().manual_seed(0)).to(dtype), torch.zeros(6)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_model_in_full_precision_is_looked_at_itself(dtype):
    model = nn.Linear(3, 2, dtype=dtype)
    subject = prepared(model, pair(dtype), 4, "plain")
    assert subject.model is model and subject.batch.samples == 4 and subject.notes == ()


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_is_looked_at_as_a_float32_copy(dtype):
    model = drawn(nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4))).to(dtype)
    model[0].weight.grad = torch.ones_like(model[0].weight)
    subject = prepared(model, pair(dtype), 6, "half")
    assert {p.dtype for p in subject.model.parameters()} == {torch.float32} and subject.model is not model
    assert torch.equal(subject.model[0].weight, model[0].weight.float())
    assert {p.dtype for p in model.parameters()} == {dtype} and model[0].weight.grad is not None
    assert subject.batch.inputs.dtype == torch.float32
    assert subject.notes == (
        f"The model is in {str(dtype).removeprefix('torch.')}; a copy of it in float32 was measured.",
    )


def test_tied_weights_stay_tied_in_the_copy():
    model = nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 3)).bfloat16()
    model[1].weight = model[0].weight
    copied = prepared(model, pair(torch.bfloat16), 2, "tied").model
    assert copied[0].weight is copied[1].weight


def test_half_precision_that_cannot_be_copied_says_what_to_do():
    model = nn.Linear(3, 2).bfloat16()
    model.generator = (step for step in range(3))
    with pytest.raises(InvalidInputError, match=r"cannot be copied .* too coarse .* Hand in model\.float\(\)"):
        prepared(model, pair(torch.bfloat16), 2, "generator")


def test_fewer_samples_of_a_costly_model(monkeypatch):
    monkeypatch.setattr("skiplens.graph.lens.operations_of", lambda model, batch: OPERATIONS / 10)
    subject = prepared(nn.Linear(3, 2).eval(), pair(), 6, "costly")
    assert subject.batch.samples == 3 and "3 instead of 6 samples" in subject.notes[0]


def test_inputs_that_do_not_fit_are_one_error():
    with pytest.raises(InvalidInputError, match="cannot be called with these inputs"):
        prepared(nn.Linear(4, 2), Batch(*pair()), 4, "misfit")


class Scored(nn.Module):
    """Scores of tokens; `answers` makes the forward pass of it."""

    def __init__(self):
        super().__init__()
        self.words, self.head = nn.Embedding(7, 4), nn.Linear(4, 7)

    def scores(self, tokens):
        return self.head(self.words(tokens))


class Required(Scored):
    def forward(self, input_ids, labels):
        scores = self.scores(input_ids)
        return {"loss": nn.functional.cross_entropy(scores.flatten(0, 1), labels.flatten()), "logits": scores}


class LastAlone(Scored):
    """As nanoGPT: without targets the scores of the last token alone."""

    def forward(self, idx, targets=None):
        scores = self.scores(idx)
        if targets is None:
            return scores[:, [-1]], None
        return scores, nn.functional.cross_entropy(scores.flatten(0, 1), targets.flatten())


class Shifted(Scored):
    """Returns its loss alone, and makes the next token the target of each by itself."""

    def forward(self, input_ids, labels):
        return nn.functional.cross_entropy(self.scores(input_ids)[:, :-1].flatten(0, 1), labels[:, 1:].flatten())


class Optional(Scored):
    def forward(self, input_ids, labels=None):
        return self.scores(input_ids)


TOKENS = torch.arange(20).reshape(4, 5) % 7


@pytest.mark.parametrize(
    ("model", "data", "name"),
    [
        (Required(), {"input_ids": TOKENS, "labels": TOKENS.flip(0)}, "labels"),
        (LastAlone(), (TOKENS, TOKENS.flip(0)), "targets"),
        (LastAlone(), [(TOKENS, TOKENS.flip(0))] * 2, "targets"),
        (Shifted(), {"input_ids": TOKENS, "labels": TOKENS}, "labels"),
    ],
    ids=["required", "last", "loader", "shifted"],
)
def test_targets_that_a_model_asks_for_are_handed_over(model, data, name):
    subject = prepared(model, data, 4, "asks")
    assert f"takes its targets as an argument ({name})" in subject.notes[0]
    given = data[0] if isinstance(data, list) else data
    labels = given["labels"] if isinstance(given, dict) else given[1]
    assert torch.equal(subject.batch.inputs[name], labels)  # as they came, also where the targets are the next tokens
    loss, batch = subject.fitted_loss(subject.batch)
    expected = model(TOKENS, labels)
    expected = expected if isinstance(model, Shifted) else expected["loss"] if name == "labels" else expected[1]
    measured = LossFunction(loss)(model, batch)
    assert_close(measured, expected)
    assert all(name in batch.inputs for batch in subject.data)


def test_a_model_that_asks_for_targets_can_be_forecast_improved_and_compared():
    many = {"input_ids": TOKENS.repeat(16, 1), "labels": TOKENS.flip(0).repeat(16, 1)}
    model = Required()
    found = sl.forecast(model, many, cost=20)
    assert any("takes its targets as an argument (labels)" in note for note in found.notes)
    asked = sl.forecast(model, Batch(many, many["labels"]), cost=20)  # handed over by hand
    assert found.loss == asked.loss and found.rate == asked.rate
    assert sl.improve(model, many, steps=70, cost=140, keep="outputs").before.loss > 0
    models = {"a": model, "b": Required()}
    assert sl.compare(models, many, lenses=["task"], draws=1).problems == ()


def test_compiled_code_is_refused_with_what_to_do():
    model = torch.jit.script(nn.Linear(3, 2))
    for call in (sl.inspect, sl.forecast):
        with pytest.raises(InvalidInputError, match=r"compiled TorchScript\. Hand in the nn\.Module"):
            call(model, pair())


def test_labels_that_a_model_can_do_without_are_no_inputs():
    subject = prepared(Optional(), {"input_ids": TOKENS, "labels": TOKENS.flip(0)}, 4, "optional")
    assert list(subject.batch.inputs) == ["input_ids"] and subject.notes == ()


def test_a_model_that_refuses_its_targets_too_says_why():
    with pytest.raises(InvalidInputError, match="missing 1 required positional argument: 'labels'"):
        prepared(Required(), {"input_ids": TOKENS, "labels": torch.zeros(4, 5)}, 4, "wrong")


def test_a_lens_that_would_exhaust_the_memory_says_what_fits():
    """1.1 thousand million parameters on the device meta: 4.4 GB in float32, of which no byte is taken."""
    with torch.device("meta"):
        model = nn.Sequential(*(nn.Linear(10_000, 10_000, bias=False) for _ in range(11))).bfloat16()
    every = LENSES.values()
    require_room(LENSES["paths"], model, every, 2**30)
    require_room(LENSES["signal"], model, every, 5 * 2**30)
    said = r"lens forecast, which holds 5 numbers for each parameter .* needs 20\.5 GiB, but only 5\.0 GiB may be used"
    with pytest.raises(TooLargeError, match=rf"{said}\. What fits is --lens structure,signal,layers,task,paths,j"):
        require_room(LENSES["forecast"], model, every, 5 * 2**30)


def test_without_memory_a_report_has_what_fits(monkeypatch):
    monkeypatch.setattr("skiplens.report.inspection.free_bytes", lambda device: 31)  # of 4 parameters, 32 bytes
    report = sl.inspect(nn.Linear(3, 1).double(), pair(), lenses=["task"])
    assert [problem.lens for problem in report.problems] == ["signal", "layers"]
    assert "What fits is --lens structure,task,paths,jacobians,convergence" in report.problems[0].message
    assert report.verdict.startswith("Not enough measured (1 of 3)")


def test_a_copy_in_float32_that_does_not_fit_is_not_made(monkeypatch):
    monkeypatch.setattr("skiplens.graph.lens.free_bytes", lambda device: 31)
    with pytest.raises(TooLargeError, match=r"A copy of the model in float32 needs 32 B, but only 31 B may be used"):
        prepared(nn.Linear(3, 2).bfloat16(), pair(torch.bfloat16), 4, "large")
