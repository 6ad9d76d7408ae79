import pytest
import torch

from skiplens.base.errors import InvalidInputError
from skiplens.graph.functional import flat_outputs, main_output, select_outputs


def test_logits_come_before_the_first_tensor():
    first, logits = torch.zeros(2, 1), torch.ones(2, 3)
    assert main_output(logits) is logits
    assert main_output((first, logits)) is first
    assert main_output({"loss": first, "logits": logits}) is logits
    assert main_output({"hidden": [torch.zeros(2, dtype=torch.long), logits]}) is logits


def test_outputs_without_a_floating_tensor_are_refused():
    with pytest.raises(InvalidInputError, match="The model returned tuple, in which there is no floating-point tensor"):
        main_output((torch.zeros(2, dtype=torch.long), "text"))


def test_all_axes_after_the_samples_are_joined():
    assert flat_outputs(torch.zeros(2, 3, 4), 2).shape == (2, 12)
    assert flat_outputs(torch.zeros(2), 2).shape == (2, 1)


@pytest.mark.parametrize("shape", [(), (3, 2)])
def test_another_first_axis_is_refused(shape):
    with pytest.raises(InvalidInputError, match=r"for 2 samples; its first axis must be the samples"):
        flat_outputs(torch.zeros(shape), 2)


@pytest.mark.parametrize(
    ("choice", "indices", "separate"),
    [
        ("trace", (0, 1, 2, 3, 4, 5), False),
        ("full", (0, 1, 2, 3, 4, 5), True),
        (4, (4,), False),
        (-1, (5,), False),
        ((1, 2), (5,), False),
        ((0, -1), (2,), False),
    ],
)
def test_selections(choice, indices, separate):
    selection = select_outputs(choice, (2, 3))
    assert (selection.indices, selection.separate) == (indices, separate)


@pytest.mark.parametrize("choice", [6, -7, (2, 0), (0, 0, 0)])
def test_an_index_outside_is_refused(choice):
    with pytest.raises(InvalidInputError, match=r"is not an output of the model: .* have shape \(2, 3\)"):
        select_outputs(choice, (2, 3))


def test_an_unknown_word_is_refused():
    with pytest.raises(InvalidInputError, match="outputs='sum'; use 'trace', 'full' or the index"):
        select_outputs("sum", (2,))
