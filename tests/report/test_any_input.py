"""Whatever comes, a report or one clear error; and the model stays as it was."""

import copy

import pytest
import torch
from torch import nn

import skiplens as sl
from skiplens.base.errors import InvalidInputError, SkiplensError
from skiplens.report.inspection import UNEXPECTED
from skiplens.signal.reading import SignalReading
from skiplens.signal.structure import StructureReading
from skiplens.tangent.reading import TangentReading
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


@pytest.mark.parametrize("batch", ["words", {"inputs": 1}, (noise(2, 3), "label"), (noise(2, 3),)])
def test_a_loader_that_gives_something_else_is_one_clear_error(batch):
    with pytest.raises(InvalidInputError, match=r"batch 0 of data is .* Wanted \(inputs, targets\)"):
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
