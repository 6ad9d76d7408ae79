import pytest
import torch

from skiplens.base.errors import DataError
from skiplens.data.formats import read_cifar, write_cifar


def test_a_record_is_labels_then_red_green_and_blue_planes():
    red, green, blue = bytes([10] * 1023 + [11]), bytes([20] * 1024), bytes([30] * 1024)
    images, labels = read_cifar(bytes([7]) + red + green + blue, label_bytes=1, classes=10)
    assert labels.tolist() == [7] and images.shape == (1, 3, 32, 32)
    assert images[0, :, 0, 0].tolist() == [10, 20, 30] and images[0, 0, 31, 31] == 11


def test_of_two_label_bytes_the_second_is_the_fine_one():
    _, labels = read_cifar(bytes([3, 91]) + bytes(3072), label_bytes=2, classes=100)
    assert labels.tolist() == [91]


def test_writes_what_it_reads(generator):
    images = torch.randint(256, (4, 3, 32, 32), generator=generator, dtype=torch.uint8)
    labels = torch.tensor([0, 9, 3, 3])
    again, labels_again = read_cifar(write_cifar(images, labels), label_bytes=1, classes=10)
    assert torch.equal(images, again) and torch.equal(labels, labels_again)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (bytes(3072), "batch is truncated: it has 3072 bytes, which is no multiple of 3073"),
        (b"", "batch is truncated: it has 0 bytes"),
        (bytes([10]) + bytes(3072), "batch has the label 10, but there are 10 classes"),
    ],
)
def test_what_is_wrong_is_said(content, message):
    with pytest.raises(DataError, match=message):
        read_cifar(content, label_bytes=1, classes=10, where="batch")
