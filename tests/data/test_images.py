import pytest
import torch

from skiplens.base.errors import InvalidInputError
from skiplens.data.images import ImageSet


@pytest.fixture
def images():
    pixels = torch.arange(3 * 2 * 2, dtype=torch.uint8).reshape(3, 1, 2, 2) * 20
    return ImageSet(pixels, torch.tensor([2, 0, 1]), ("a", "b", "c"))


def test_pixels_are_between_zero_and_one(images):
    assert images.pixels().dtype == torch.float64 and images.pixels(torch.float32).dtype == torch.float32
    assert images.pixels()[2, 0, 1, 1].item() == 220 / 255


def test_first_select_and_one_hot(images):
    assert len(images.first(2)) == 2 and len(images.first(9)) == 3
    assert images.select(torch.tensor([2, 0])).labels.tolist() == [1, 2]
    assert images.one_hot().tolist() == [[0, 0, 1], [1, 0, 0], [0, 1, 0]]
    assert images.shape == (1, 2, 2)


def test_stream_follows_the_order(images):
    batches = list(images.stream(torch.tensor([1, 2, 0]), 2))
    assert [labels.tolist() for _, labels in batches] == [[0, 1], [2]]
    assert torch.equal(batches[1][0], images.images[:1])


def test_batch_is_inputs_and_targets(images):
    inputs, targets = images.batch()
    assert inputs.shape == (3, 1, 2, 2) and torch.equal(targets, images.labels)


def test_wrong_shapes_are_refused(images):
    with pytest.raises(InvalidInputError, match=r"Images must be uint8 .* got torch.float64 with shape \(3, 1, 2, 2\)"):
        ImageSet(images.pixels(), images.labels, images.classes)
    with pytest.raises(InvalidInputError, match=r"Labels must be int64 with shape \(3,\)"):
        ImageSet(images.images, images.labels[:2], images.classes)
