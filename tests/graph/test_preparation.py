import pytest
import torch
from torch import nn

from skiplens.base.errors import InvalidInputError
from skiplens.graph.batch import Batch
from skiplens.graph.lens import OPERATIONS, prepared
from tests.networks import drawn


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
    monkeypatch.setattr("skiplens.graph.lens.operations_of", lambda model, batch: OPERATIONS / 30)
    subject = prepared(nn.Linear(3, 2).eval(), pair(), 6, "costly")
    assert subject.batch.samples == 3 and "3 instead of 6 samples" in subject.notes[0]


def test_inputs_that_do_not_fit_are_one_error():
    with pytest.raises(InvalidInputError, match="cannot be called with these inputs"):
        prepared(nn.Linear(4, 2), Batch(*pair()), 4, "misfit")
