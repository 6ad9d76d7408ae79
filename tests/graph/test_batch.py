import re

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader, Dataset, IterableDataset, TensorDataset

from skiplens.base.arguments import Arguments
from skiplens.base.errors import InvalidInputError, NoTargetsError
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


def test_words_as_targets_are_told_how_they_become_numbers(pair):
    words = np.array(["cat", "dog", "cat", "cow"])
    with pytest.raises(InvalidInputError, match=r"targets of data are words .*return_inverse=True"):
        as_batch((pair[0], words))
    as_batch((pair[0], np.unique(words, return_inverse=True)[1]))


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
        ("cifar10", "data is of type str"),
        (7, "data is of type int"),
        ({"x": "words"}, "The inputs of data are of type dict"),
        ({"x": [[1, 2], [3]]}, "rows of several lengths"),
        (np.array([{}]), "array of type object"),
        ([], "data gave no batches at all"),
        ([torch.tensor(2.0)], "batch 0 of data has no axis of samples"),
        ([(torch.zeros(2), "text", torch.zeros(2))], r"batch 0 of data is a tuple of 3 \(Tensor, str"),
        ([({"x": torch.zeros(2)}, "a", 3)], r"batch 0 of data is a tuple of 3 \(dict, str"),
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


def test_several_inputs_have_their_targets_last(pair):
    x, y = pair
    (batch,) = as_batches((x, 2 * x, y))
    assert torch.equal(batch.inputs[1], 2 * x) and torch.equal(batch.targets, y)
    loaded = take(DataLoader(TensorDataset(x, 2 * x, y), batch_size=3), 4)
    assert torch.equal(loaded.inputs[1], 2 * x) and torch.equal(loaded.targets, y)


@pytest.mark.parametrize("name", ["labels", "label", "label_ids", "targets", "target"])
def test_labels_of_a_mapping_are_targets_and_no_arguments(pair, name):
    x, y = pair
    (batch,) = as_batches({"x": x, name: y, "scale": 2.0, "text": ["a", "b", "c", "d"]})
    assert batch.inputs.keys() == {"x", "scale"} and torch.equal(batch.targets, y)
    loaded = take([{"x": x, name: y}] * 2, 8)
    assert torch.equal(loaded.inputs["x"], torch.cat([x, x])) and loaded.samples == 8


def test_labels_that_repeat_the_tokens_become_the_next_tokens():
    tokens = torch.tensor([[5, 6, 7], [8, 9, 0]])
    (batch,) = as_batches({"input_ids": tokens, "labels": torch.tensor([[5, 6, 7], [8, 9, -100]])})
    assert batch.targets.tolist() == [[6, 7, -100], [9, -100, -100]]
    (masked,) = as_batches({"input_ids": tokens, "labels": torch.tensor([[-100, 4, -100], [-100, -100, 3]])})
    assert masked.targets.tolist() == [[-100, 4, -100], [-100, -100, 3]]


@pytest.mark.parametrize("alone", [lambda x: x, lambda x: (x, None), lambda x: {"x": x}, lambda x: x.numpy()])
def test_inputs_alone_are_a_batch_without_targets(pair, alone):
    batch = take(alone(pair[0]), 3)
    assert batch.samples == 3 and next(iter(batch.arguments().leaves())).shape == (3, 3)
    with pytest.raises(NoTargetsError, match="inputs alone, and this needs targets"):
        batch.labelled()


def test_a_loader_of_inputs_alone(pair):
    assert take(DataLoader(TensorDataset(pair[0]), batch_size=2), 4).samples == 4
    assert take([pair[0], pair[0], pair[0]], 12).samples == 12


def test_arrays_become_tensors_of_the_default_types():
    x, y = np.arange(8.0).reshape(4, 2)[::-1], np.arange(4, dtype=np.int32)
    (batch,) = as_batches((x, y))
    assert batch.inputs.dtype == torch.get_default_dtype() and batch.targets.dtype == torch.int64
    assert batch.inputs.tolist() == x.tolist() and batch.targets.tolist() == y.tolist()
    (named,) = as_batches(({"x": x, "mask": x > 3}, y))
    assert named.inputs["mask"].dtype == torch.bool and isinstance(named.inputs["x"], torch.Tensor)
    (lists,) = as_batches({"input_ids": [[1, 2], [3, 4]], "labels": [0, 1]})
    assert lists.inputs["input_ids"].dtype == torch.int64 and lists.targets.tolist() == [0, 1]


class Sorted(Dataset):
    def __len__(self):
        return 100

    def __getitem__(self, index):
        return np.full(2, index, dtype=np.float32), index // 50


class Stream(IterableDataset):
    def __iter__(self):
        return iter([(torch.full((2,), float(index)), index) for index in range(100)])


def test_a_data_set_is_mixed_once_and_read_in_that_order_again():
    batches = as_batches(Sorted())
    assert [batch.samples for batch in batches] == [64, 36]
    first, again = take(Sorted(), 100), take(Sorted(), 100)
    assert torch.equal(first.inputs, again.inputs) and sorted(first.inputs[:, 0].tolist()) == list(range(100))
    assert torch.equal(first.targets, (first.inputs[:, 0] >= 50).long())
    assert 16 <= int(first.targets[:64].sum()) <= 48  # 4 standard deviations of a draw without return


def test_a_stream_of_samples_keeps_its_order():
    taken = take(Stream(), 70)
    assert taken.targets.tolist() == list(range(70)) and taken.inputs[:, 1].tolist() == list(range(70))


def test_a_list_of_samples_is_a_data_set(pair):
    rows = [(x, int(y)) for x, y in zip(*pair, strict=True)]
    batch = take(rows, 4)
    assert torch.equal(batch.inputs, pair[0][batch.targets]) and batch.samples == 4


class Table:
    column_names = ("input_ids", "label", "text")

    def __len__(self):
        return 3

    def __getitem__(self, index):
        return {"input_ids": list(range(1, index + 2)), "label": index, "text": "word"}


def test_rows_of_several_lengths_are_filled_up_and_masked():
    batch = take(Table(), 3)
    for tokens, mask, label in zip(
        batch.inputs["input_ids"], batch.inputs["attention_mask"], batch.targets, strict=True
    ):
        length = int(label) + 1
        assert tokens.tolist() == [*range(1, length + 1), *([0] * (3 - length))]
        assert mask.tolist() == [1] * length + [0] * (3 - length)
    assert batch.inputs.keys() == {"input_ids", "attention_mask"}


def test_batches_of_several_lengths_are_joined_where_a_mask_hides_the_filling():
    def batch(length):
        ones = torch.ones(2, length, dtype=torch.int64)
        return {"input_ids": 7 * ones, "attention_mask": ones, "labels": 3 * ones}

    joined = take([batch(2), batch(3)], 4)
    assert joined.inputs["attention_mask"].sum() == 10 and joined.inputs["input_ids"][0].tolist() == [7, 7, 0]
    assert joined.targets[0].tolist() == [3, 3, -100] and joined.targets[3].tolist() == [3, 3, 3]
    with pytest.raises(InvalidInputError, match=r"differ in shape \(\(2,\) and \(3,\)\)"):
        take([torch.ones(2, 2), torch.ones(2, 3), torch.ones(2, 3)], 4)


def test_samples_of_several_shapes_are_one_sentence():
    images = [(torch.zeros(3, size, size), 0) for size in (4, 5)]
    with pytest.raises(InvalidInputError, match=r"differ in shape \(\(3, 4, 4\) and \(3, 5, 5\)\).*--image-size"):
        take(images, 2)
