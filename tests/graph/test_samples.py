import inspect

import pytest
import torch

from skiplens.base.errors import InvalidInputError
from skiplens.graph.inputs import require_device, require_finite, samples_of


def test_three_forms_of_inputs():
    x, mask = torch.zeros(4, 2), torch.ones(4, dtype=torch.long)
    assert samples_of(x).args[0].shape == (4, 2)
    assert len(samples_of((x, mask, "mode")).args) == 3
    assert set(samples_of({"x": x, "mask": mask}).kwargs) == {"x", "mask"}
    assert all(samples_of(inputs).count == 4 for inputs in (x, (x, mask), {"x": x}))


def test_taking_samples_leaves_shared_arguments_alone():
    scale, x = torch.tensor(2.0), torch.arange(6.0).reshape(3, 2)
    taken = samples_of((x, scale, None)).take([2, 0])
    assert torch.equal(taken.args[0], x[[2, 0]])
    assert taken.args[1] is scale
    assert taken.args[2] is None
    assert taken.count == 2


def test_chunks_follow_one_another():
    x = torch.arange(5)
    pieces = list(samples_of(x).chunks(2))
    assert torch.equal(torch.cat([chunk.args[0] for _, chunk in pieces]), x)
    assert [where for where, _ in pieces] == [slice(0, 2), slice(2, 4), slice(4, 5)]


def test_gradients_do_not_reach_the_callers_tensor():
    assert not samples_of(torch.zeros(2, 2, requires_grad=True)).args[0].requires_grad


@pytest.mark.parametrize(
    ("inputs", "message"),
    [
        ((), "no tensor with a sample axis"),
        (torch.tensor(1.0), "no tensor with a sample axis"),
        (torch.zeros(0, 3), "no samples"),
        ((torch.zeros(3, 1), torch.zeros(2)), "disagree on the number of samples .* '0' has 3, '1' has 2"),
    ],
)
def test_wrong_inputs_are_refused(inputs, message):
    with pytest.raises(InvalidInputError, match=message):
        samples_of(inputs)


def test_inputs_of_another_type_are_refused():
    without_type_checks = inspect.unwrap(samples_of)
    with pytest.raises(InvalidInputError, match=r"inputs is 'text'\. Give a tensor, a tuple"):
        without_type_checks("text")


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), -float("inf")])
def test_values_that_are_not_finite_are_refused(bad):
    x = torch.zeros(3, 2)
    x[1, 0] = bad
    with pytest.raises(InvalidInputError, match="'x' has NaN or infinite values in 1 of 3 samples, first in sample 1"):
        require_finite(samples_of({"x": x}))
    with pytest.raises(InvalidInputError, match="in 1 of 3 samples"):
        require_finite(samples_of(x[:, 0]))


def test_integers_are_finite():
    require_finite(samples_of(torch.zeros(3, dtype=torch.long)))


def test_another_device_is_refused():
    with pytest.raises(InvalidInputError, match=r"is on cpu and the model's parameters are on meta; move one of them"):
        require_device(samples_of(torch.zeros(2, 2)), torch.device("meta"))
