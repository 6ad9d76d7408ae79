"""Images that studies train on: digits in their place, folders, and what is missing."""

import pytest
import torch

from skiplens.base.errors import DataError
from skiplens.data.images import sample
from skiplens.papers.images import Portion, missing, training_and_test


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A tiny ImageNet: two classes, images of other sizes, bright ones and dark ones."""
    image = pytest.importorskip("PIL.Image")
    for split, count in (("train", 6), ("val", 3)):
        for number, name in enumerate(("n01", "n02")):
            place = tmp_path / "imagenet" / split / name
            place.mkdir(parents=True)
            for index in range(count):
                colour = (100 + 100 * number, 50 + 5 * index, 40)
                image.new("RGB", (24 + index, 20), colour).save(place / f"{index}.png")
    monkeypatch.setenv("SKIPLENS_DATA", str(tmp_path))
    training_and_test.cache_clear()
    return tmp_path


def test_digits_are_framed_standardised_and_in_colour():
    training, test = training_and_test("digits", Portion(100, 20), 8)
    assert training.inputs.shape == (100, 3, 32, 32) and test.inputs.shape == (20, 3, 32, 32)
    assert training.inputs.dtype == torch.float32
    assert abs(training.inputs.mean()) < 1e-4 and abs(training.inputs.std() - 1) < 1e-3
    assert torch.equal(training.targets, sample().labels[:100]) and torch.equal(test.targets, sample().labels[-20:])
    assert torch.equal(training.inputs[:, 0], training.inputs[:, 2])


def test_smaller_images_are_means_over_squares():
    whole, _ = training_and_test("digits", Portion(10, 5), 8)
    small, _ = training_and_test("digits", Portion(10, 5, side=8), 8)
    blocks = whole.inputs.reshape(10, 3, 8, 4, 8, 4).mean((3, 5))
    assert small.inputs.shape == (10, 3, 8, 8) and bool((small.inputs - blocks).abs().max() < 1e-5)


def test_training_and_test_digits_do_not_overlap():
    training, test = training_and_test("digits", Portion(None, None), 8)
    assert len(training.targets) + len(test.targets) == len(sample())


def test_a_missing_data_set_comes_with_the_command_that_gets_it(tmp_path, monkeypatch):
    monkeypatch.setenv("SKIPLENS_CACHE", str(tmp_path))
    monkeypatch.delenv("SKIPLENS_DATA", raising=False)
    assert missing("cifar100") == "cifar100 is not on this machine; get it with: skiplens data get cifar100"
    assert "put its images into imagenet/train/CLASS/" in missing("imagenet")
    assert missing("digits") == ""


def test_a_data_folder_that_is_none_is_no_imagenet(tmp_path, monkeypatch):
    monkeypatch.setenv("SKIPLENS_DATA", str(tmp_path / "nowhere"))
    assert "SKIPLENS_DATA" in missing("imagenet")
    training_and_test.cache_clear()
    with pytest.raises(DataError, match=r"ImageNet is not on this machine: put its images into imagenet/train"):
        training_and_test("imagenet", Portion(), 4)


def test_a_folder_is_shuffled_anew_and_tested_in_its_centre(folder):
    assert missing("imagenet") == ""
    training, test = training_and_test("imagenet", Portion(side=16), 5)
    assert len(training) == 3
    orders = []
    for _ in range(3):
        batches = list(training)
        assert [len(batch.targets) for batch in batches] == [5, 5, 2]
        assert {tuple(batch.inputs.shape[1:]) for batch in batches} == {(3, 16, 16)}
        orders.append(torch.cat([batch.inputs[:, 1, 0, 0] for batch in batches]))
    assert any(not torch.equal(orders[0], other) for other in orders[1:])
    assert all(torch.equal(orders[0].sort().values, other.sort().values) for other in orders)
    found = list(test)
    assert sum(len(batch.targets) for batch in found) == 6 and found[0].inputs.shape[1:] == (3, 14, 14)
    bright = torch.cat([batch.inputs[batch.targets == 1, 0] for batch in found])
    dark = torch.cat([batch.inputs[batch.targets == 0, 0] for batch in found])
    assert bool((bright > 0).all() and (dark < 0).all())  # standardised as the training images are
    assert bright[0, 0, 0] == pytest.approx(1, abs=1e-5) and dark[0, 0, 0] == pytest.approx(-1, abs=1e-5)
