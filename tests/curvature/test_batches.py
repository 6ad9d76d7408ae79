import pytest
import torch

from skiplens.base.errors import InvalidInputError
from skiplens.curvature.operator import loss_operator
from skiplens.curvature.problem import loss_batches
from tests.curvature.cases import classes, in_batches, multilayer


def test_a_one_shot_iterator_is_refused():
    model, inputs = multilayer()
    with pytest.raises(
        InvalidInputError, match=r"one-shot iterator \(list_iterator\).*list of batches or a DataLoader"
    ):
        loss_operator(model, iter(in_batches(inputs, classes(), 4)), loss="cross_entropy")


def test_no_data_and_wrong_types():
    model, inputs = multilayer()
    with pytest.raises(InvalidInputError, match=r"data gave no batches at all"):
        loss_operator(model, [], loss="cross_entropy")
    with pytest.raises(InvalidInputError, match="inputs alone, and this needs targets"):
        loss_operator(model, inputs, loss="cross_entropy")
    with pytest.raises(InvalidInputError, match="inputs alone, and this needs targets"):
        loss_operator(model, [inputs], loss="cross_entropy")
    with pytest.raises(InvalidInputError, match=r"batch 1 of data is a tuple of 3"):
        loss_operator(model, [(inputs, classes()), (inputs, "words", classes())], loss="cross_entropy")
    with pytest.raises(InvalidInputError, match=r"batch 0 of data has no samples"):
        loss_operator(model, [(inputs[:0], classes()[:0])], loss="cross_entropy")
    with pytest.raises(
        InvalidInputError, match=r"cannot be called with these inputs \(float64 tensor of shape \(10, 3\)"
    ):
        loss_operator(model, (inputs[:, :3], classes()), loss="cross_entropy")


def test_targets_become_labels_of_a_model_that_returns_its_loss():
    labels, ids = torch.tensor([1, 2]), torch.zeros(2, 3)
    for data in ({"ids": ids, "labels": labels}, ({"ids": ids}, labels), [{"ids": ids, "labels": labels}]):
        (batch,) = loss_batches(data, model_returns_loss=True)
        assert set(batch.inputs) == {"ids", "labels"}
        assert batch.samples == 2
    (batch,) = loss_batches({"ids": ids}, model_returns_loss=True)
    assert set(batch.inputs) == {"ids"}
