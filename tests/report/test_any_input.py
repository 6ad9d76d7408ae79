"""Whatever comes, a report or one clear error; and the model stays as it was."""

import copy
from dataclasses import dataclass

import pytest
import torch
import transformers
from torch import nn

import skiplens as sl
from skiplens.base.errors import InvalidInputError, SkiplensError
from skiplens.jacobians.reading import JacobianSpectrum
from skiplens.report.inspection import UNEXPECTED
from skiplens.signal.reading import SignalReading
from skiplens.signal.structure import StructureReading
from skiplens.tangent.reading import TangentReading
from skiplens.task.reading import TaskReading
from skiplens.trainability.reading import Forecast
from tests import hugging_face
from tests.lens_cases import subject
from tests.networks import Formula, drawn, linear, noise

LABELS = torch.arange(4) % 2


def pair():
    return noise(4, 3), LABELS


def inspected(model, data, **options):
    """The report, after checking that nothing unforeseen happened and that the model is the same, bit for bit."""
    before = copy.deepcopy(model.state_dict())
    report = sl.inspect(model, data, **options)
    assert all(UNEXPECTED not in problem.message for problem in report.problems)
    same = [torch.equal(before[name].nan_to_num(), value.nan_to_num()) for name, value in model.state_dict().items()]
    assert all(same)
    return report


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("build", [hugging_face.resnet_basic, hugging_face.gpt2], ids=lambda build: build.__name__)
def test_models_in_other_types(build, dtype):
    """Images in a tensor; tokens in a dict, with tied weights and a tuple of outputs."""
    model, inputs = hugging_face.built(build)
    inputs = inputs if isinstance(inputs, dict) else inputs.to(dtype)
    report = inspected(model.to(dtype), (inputs, torch.arange(2)), lenses=["structure"])
    notes = report.reading(StructureReading).notes
    assert any("a copy of it in float32 was measured" in note for note in notes) == (dtype == torch.bfloat16)
    assert report.problems == () and report.reading(SignalReading).precision == "float32"


def test_a_model_that_casts_to_half_precision_itself_is_told_of_the_copy():
    model = Formula(lambda m, x: m.g(m.f(x.bfloat16()).float()), f=linear().bfloat16(), g=linear())
    with pytest.raises(InvalidInputError, match=r"a copy in float32 that was called.*x\.to\(self\.weight\.dtype\)"):
        sl.inspect(model, (noise(4, 3, dtype=torch.float32), LABELS))


def test_a_tuple_of_outputs_and_named_inputs():
    model = drawn(Formula(lambda m, left, right: (left + m.f(right), None), f=linear()))
    report = inspected(model, ({"left": noise(4, 3), "right": noise(4, 3, seed=1)}, LABELS))
    assert [problem.lens for problem in report.problems] in ([], ["jacobians"], ["paths"], ["convergence"])


def test_without_residual_blocks_what_applies_is_reported():
    report = inspected(drawn(nn.Sequential(linear(), nn.ReLU(), linear(3, 2))), pair())
    assert report.problems == ()
    assert any("There is no residual join" in note for note in report.reading(StructureReading).notes)


def test_nan_in_the_model_is_a_finding_and_not_a_crash():
    model = drawn(nn.Sequential(linear(), nn.ReLU(), linear(3, 2)))
    with torch.no_grad():
        model[0].weight[0, 0] = float("nan")
    report = inspected(model, pair())
    assert report.findings[0].rule == "not_finite" and report.problems


def test_a_model_that_draws_at_random_is_told():
    model = drawn(Formula(lambda m, x: x + m.f(x) * torch.rand_like(x), f=linear()))
    report = inspected(model, pair())
    assert "not_repeatable" in [finding.rule for finding in report.findings]


def test_outputs_without_a_gradient_are_told():
    model = drawn(Formula(lambda m, x: (x + m.f(x)).argmax(1), f=linear()))
    report = inspected(model, pair())
    assert len(report.problems) >= 2 and report.reading(TangentReading) is None


def test_integer_inputs_are_looked_at_from_their_embedding():
    embedding = nn.Embedding(9, 3)
    model = drawn(Formula(lambda m, x: (m.e(x) + m.f(m.e(x))).mean(1), e=embedding, f=linear()))
    report = inspected(model, (torch.arange(8).reshape(4, 2), LABELS))
    assert report.problems == ()


def test_a_loader_that_ends_early_gives_what_it_has():
    def batches():
        yield noise(3, 3), torch.zeros(3, dtype=torch.int64)

    report = inspected(drawn(linear()), batches(), lenses=["structure"])
    assert report.reading(SignalReading).samples == 3


@pytest.mark.parametrize("batch", ["words", {"inputs": 1}, (noise(2, 3), "label"), (1,)])
def test_a_loader_that_gives_something_else_is_one_clear_error(batch):
    with pytest.raises(InvalidInputError, match=r"batch 0 of data (is|are) .* Wanted \(inputs, targets\)"):
        sl.inspect(drawn(linear()), [batch])


def test_a_model_that_changes_itself_is_refused():
    def forward(m, x):
        with torch.no_grad():
            m.f.weight.add_(1)
        return m.f(x)

    with pytest.raises(SkiplensError, match=r"changes its own parameters when it is called: f\.weight"):
        sl.inspect(Formula(forward, f=linear()), pair())


def test_the_model_stays_as_it_was_when_a_lens_fails(monkeypatch):
    def broken(*_, **__):
        raise ZeroDivisionError("of the measurement.")

    monkeypatch.setattr("skiplens.tangent.report.empirical_ntk", broken)
    looked_at = subject(training=True)
    before = copy.deepcopy(looked_at.model.state_dict())
    report = sl.inspect(looked_at.model, looked_at.batch, lenses=["tangent"])
    assert "ZeroDivisionError: of the measurement." in report.problems[0].message
    assert all(torch.equal(before[name], value) for name, value in looked_at.model.state_dict().items())
    assert looked_at.model.training


@dataclass
class Answer:
    loss: torch.Tensor
    scores: torch.Tensor


FORMS = {
    "mapping": lambda scores: {"aside": scores.mean(), "scores": scores},
    "tuple": lambda scores: (scores.mean(), scores),
    "dataclass": lambda scores: Answer(scores.mean(), scores),
}


@pytest.mark.parametrize("form", FORMS)
def test_outputs_in_any_form_give_the_numbers_of_the_scores_alone(form):
    def model(change):
        return drawn(Formula(lambda m, x: change(x + m.f(x)), f=linear()))

    wanted, found = inspected(model(lambda scores: scores), pair()), inspected(model(FORMS[form]), pair())
    assert found.problems == wanted.problems == () and found.verdict == wanted.verdict
    assert found.reading(TaskReading).loss == wanted.reading(TaskReading).loss
    assert torch.equal(found.reading(TangentReading).kernel, wanted.reading(TangentReading).kernel)


def test_a_model_that_returns_its_loss_is_measured_with_it():
    model = drawn(Formula(lambda m, x: (x + m.f(x)).square().mean(), f=linear()))
    report = inspected(model, noise(4, 3))
    task = report.reading(TaskReading)
    assert task.loss == pytest.approx(model(noise(4, 3)).item()) and report.reading(Forecast) is not None
    assert {problem.lens for problem in report.problems} == {"convergence", "tangent"}


def test_inputs_alone_are_looked_at_by_what_needs_no_targets():
    model = drawn(Formula(lambda m, x: x + m.f(x), f=linear()))
    report = inspected(model, noise(4, 3))
    kinds = [reading.kind for reading in report.readings]
    assert kinds == ["structure", "signal", "layers", "paths", "jacobians", "tangent"]
    assert {problem.lens for problem in report.problems} == {"forecast", "task", "curvature", "convergence"}
    assert all("inputs alone, and this needs targets" in problem.message for problem in report.problems)
    assert not any(problem.failed for problem in report.problems)


def test_the_loss_of_a_mapping_with_labels_is_the_one_that_the_model_itself_computes():
    """It shifts its labels."""
    model, inputs = hugging_face.built(hugging_face.gpt2)
    data = {**inputs, "labels": inputs["input_ids"]}
    reading = sl.inspect(model, data, lenses=["task"]).reading(TaskReading)
    assert reading.loss == pytest.approx(model(**data).loss.item(), rel=1e-5)


@pytest.mark.slow
def test_samples_that_are_folded_into_the_first_axis_are_measured_together():
    """Without coupling the Jacobian of the batch has the singular values of all samples together."""

    def fold(m, x):
        rows = x.flatten(0, 1)
        return (rows + m.f(rows)).unflatten(0, (-1, 2)).sum(1)

    models = [drawn(Formula(form, f=linear())) for form in (lambda m, x: (x + m.f(x)).sum(1), fold)]
    spectra = [inspected(model, (noise(4, 2, 3), LABELS)).reading(JacobianSpectrum) for model in models]
    assert any("of the whole batch" in note for note in spectra[1].notes)
    for left, right in zip(*(spectrum.singular_values.values() for spectrum in spectra), strict=True):
        torch.testing.assert_close(left, right)


@pytest.mark.slow
def test_a_decoder_gets_its_inputs_from_the_labels_as_the_model_itself_makes_them():
    sizes = {"d_model": 8, "d_kv": 4, "d_ff": 8, "num_layers": 1, "num_heads": 2, "vocab_size": 20}
    model = drawn(transformers.T5ForConditionalGeneration(transformers.T5Config(**sizes, decoder_start_token_id=0)))
    tokens = torch.arange(24).reshape(4, 6) % 17 + 2
    data = {"input_ids": tokens, "labels": tokens.flip(1)}
    own = model.eval()(**data).loss.item()
    for form in (data, [data, data]):
        reading = sl.inspect(model, form, lenses=["task"]).reading(TaskReading)
        assert reading.loss == pytest.approx(own, rel=1e-5)
