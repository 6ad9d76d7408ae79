import re

import pytest
import torch

from skiplens.base.arguments import Arguments
from skiplens.base.errors import InvalidInputError
from skiplens.graph.batch import Batch, as_batch, as_batches, concatenate, count_samples, limited, take


@pytest.fixture
def pair():
    return torch.arange(12.0).reshape(4, 3), torch.tensor([0, 1, 2, 3])


def test_a_pair_is_one_batch(pair):
    (batch,) = as_batches(pair)
    inputs, targets = batch
    assert inputs is pair[0] and targets is pair[1] and batch.samples == 4


def test_a_batch_is_one_batch(pair):
    assert len(list(as_batches(Batch(*pair)))) == 1


def test_two_batches_in_a_tuple_are_two_batches(pair):
    assert count_samples((pair, pair)) == 8
    assert count_samples([pair, pair]) == 8


def test_a_loader_may_give_lists_and_be_read_twice(pair):
    dataset = torch.utils.data.TensorDataset(*pair)
    batches = as_batches(torch.utils.data.DataLoader(dataset, batch_size=3))
    for _ in range(2):
        assert [batch.samples for batch in batches] == [3, 1]


def test_a_generator_is_read_once_and_the_second_time_is_an_error(pair):
    batches = as_batches(pair for _ in range(2))
    assert len(list(batches)) == 2
    with pytest.raises(InvalidInputError, match=r"one-shot iterator \(generator\) and was gone through already"):
        list(batches)


def test_positional_and_keyword_arguments(pair):
    x, y = pair
    assert Batch((x, x), y).arguments() == Arguments((x, x), {})
    assert Batch({"x": x}, y).arguments() == Arguments((), {"x": x})
    assert Batch(x, y).arguments() == Arguments((x,), {})
    assert isinstance(as_batch([[x, x], y]).inputs, tuple)


def test_to_changes_floats_only(pair):
    x, y = pair
    moved = Batch({"x": x, "mask": y > 1, "flag": True}, y).to("cpu", torch.float32)
    assert moved.inputs["x"].dtype == torch.float32
    assert moved.inputs["mask"].dtype == torch.bool and moved.inputs["flag"] is True
    assert moved.targets.dtype == torch.int64


def test_first_cuts_what_counts_samples_and_nothing_else(pair):
    x, y = pair
    table = torch.zeros(7, 2)
    cut = Batch((x, table), y).first(2)
    assert torch.equal(cut.inputs[0], x[:2]) and cut.inputs[1].shape == (7, 2) and cut.samples == 2
    assert Batch(x, y).first(99).samples == 4


def test_take_reads_no_more_than_needed(pair):
    def batches():
        yield pair
        yield pair
        raise AssertionError("read too far")

    taken = take(batches(), 6)
    assert torch.equal(taken.inputs, torch.cat([pair[0], pair[0][:2]])) and taken.targets.tolist() == [0, 1, 2, 3, 0, 1]


def test_take_of_more_than_there_is_gives_all(pair):
    assert take([pair], 10).samples == 4


def test_limited_without_a_limit_gives_all(pair):
    assert [batch.samples for batch in limited([pair, pair], None)] == [4, 4]


def test_concatenate_joins_every_argument(pair):
    x, y = pair
    joined = concatenate([Batch({"x": x, "scale": torch.ones(1, 9)}, y)] * 2)
    assert joined.inputs["x"].shape == (8, 3) and joined.inputs["scale"].shape == (1, 9) and joined.samples == 8


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (torch.zeros(2, 3), r"data is a single tensor of shape \(2, 3\)"),
        ("cifar10", "data is of type str"),
        (7, "data is of type int"),
        ({"x": torch.zeros(2)}, "data is of type dict"),
        ([], "data gave no batches at all"),
        ([torch.zeros(2)], "batch 0 of data is a single tensor"),
        ([(torch.zeros(2), torch.zeros(2), torch.zeros(2))], r"batch 0 of data is a tuple of 3 \(Tensor, Tensor"),
        ((torch.zeros(3, 2), torch.zeros(2)), "data has 3 inputs but 2 targets"),
        ((torch.zeros(0, 2), torch.zeros(0)), "data has no samples"),
        ((torch.zeros(3), torch.tensor(1.0)), "no axis of samples"),
        (("text", torch.zeros(1)), "The inputs of data are of type str"),
        (((), torch.zeros(1)), r"The inputs of data are a tuple of 0"),
    ],
)
def test_wrong_data_is_named_with_what_was_wanted(data, message):
    with pytest.raises(InvalidInputError, match=message):
        list(as_batches(data))


def test_asking_for_no_samples_is_an_error(pair):
    with pytest.raises(InvalidInputError, match="Asked for 0 samples of the data"):
        take([pair], 0)
    with pytest.raises(InvalidInputError, match="Asked for 0 samples of a batch"):
        Batch(*pair).first(0)


def test_batches_that_differ_are_not_joined(pair):
    x, y = pair
    with pytest.raises(InvalidInputError, match="differ in their arguments"):
        concatenate([Batch(x, y), Batch((x, x), y)])
    with pytest.raises(InvalidInputError, match=re.escape("There are no batches to join")):
        concatenate([])
