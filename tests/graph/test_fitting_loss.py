import pytest
import torch

from skiplens.base.errors import InvalidInputError
from skiplens.graph.batch import Batch
from skiplens.graph.loss import fitted


def fit(outputs, targets):
    return fitted(torch.zeros(*outputs), Batch(torch.zeros(outputs[0], 3), targets))


@pytest.mark.parametrize(
    ("outputs", "targets"),
    [
        ((4, 10), torch.arange(4, dtype=torch.int32)),
        ((2, 5, 10), torch.full((2, 5), 9)),  # tokens, classes last
        ((2, 10, 3, 3), torch.full((2, 3, 3), 9)),  # pixels, classes second
        ((2, 5, 10), torch.full((2, 5), -100)),  # nothing counts
    ],
)
def test_whole_numbers_are_classes(outputs, targets):
    loss, batch = fit(outputs, targets)
    assert loss == "cross_entropy" and batch.targets.dtype == torch.int64


@pytest.mark.parametrize("shape", [(4, 1), (4,)])
def test_real_numbers_are_values(shape):
    loss, batch = fit((4, 1), torch.zeros(shape, dtype=torch.float32))
    assert loss == "mse" and batch.targets.shape == (4, 1) and batch.targets.dtype == torch.float64


@pytest.mark.parametrize(
    ("outputs", "targets"),
    [((4, 10), torch.zeros(4)), ((4, 10), torch.zeros(4, 3, dtype=torch.int64))],
)
def test_targets_that_fit_no_loss(outputs, targets):
    with pytest.raises(InvalidInputError, match=r"Targets of shape .* do not fit outputs .*hand over loss="):
        fit(outputs, targets)


def test_truth_values_are_no_classes():
    with pytest.raises(InvalidInputError, match="type bool do not fit"):
        fit((4, 2), torch.ones(4, dtype=torch.bool))


def test_classes_that_the_model_does_not_have():
    with pytest.raises(
        InvalidInputError, match="run from 1 to 10, but the model has 10 outputs: classes run from 0 to 9"
    ):
        fit((4, 10), torch.tensor([1, 2, 3, 10]))


@pytest.mark.parametrize("shape", [(4,), (4, 1)])
def test_whole_numbers_for_a_single_output_are_values(shape):
    loss, batch = fitted(torch.zeros(shape), Batch(torch.zeros(4, 2), torch.arange(4)))
    assert loss == "mse" and torch.equal(batch.targets, torch.arange(4.0).reshape(shape))


def test_a_given_loss_is_kept():
    numbers = Batch(torch.zeros(4, 2), torch.arange(4.0))
    loss, batch = fitted(torch.zeros(4, 1), numbers, "mse")
    assert loss == "mse" and batch.targets.shape == (4, 1)
    assert fitted(torch.zeros(4, 1), numbers, torch.dist) == (torch.dist, numbers)
    shares = Batch(torch.zeros(4, 2), torch.full((4, 3), 1 / 3))
    assert fitted(torch.zeros(4, 3), shares, "cross_entropy") == ("cross_entropy", shares)
    with pytest.raises(InvalidInputError, match="do not fit"):
        fitted(torch.zeros(4, 3), numbers, "mse")


def test_targets_of_each_sample_with_each_other_are_cut_to_the_samples_that_are_there():
    pairs = torch.arange(24.0).reshape(4, 6)
    loss, batch = fitted(torch.zeros(4, 4), Batch(torch.zeros(4, 3), pairs))
    assert loss == "mse" and torch.equal(batch.targets, pairs[:, :4])


@pytest.mark.parametrize(
    ("targets", "hint"),
    [
        (torch.eye(3).long(), r"targets\.argmax\(1\)"),
        (torch.eye(3) > 0, r"targets\.float\(\)"),
        (torch.zeros(3, 1, dtype=torch.int64), r"targets\.squeeze\(1\)"),
        (torch.zeros(3), r"targets\.long\(\)"),
    ],
)
def test_what_is_often_handed_over_is_told_its_way(targets, hint):
    with pytest.raises(InvalidInputError, match=hint):
        fit((3, 3), targets)
