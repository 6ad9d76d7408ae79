import struct

import pytest
import torch

from skiplens.base.errors import DataError
from skiplens.data.formats import read_idx
from tests.data.toy import write_idx

TWO_BY_THREE = bytes([0, 0, 8, 2]) + struct.pack(">II", 2, 3) + bytes([1, 2, 3, 4, 5, 255])


def test_reads_the_array_the_format_describes():
    assert read_idx(TWO_BY_THREE).tolist() == [[1, 2, 3], [4, 5, 255]]


def test_writes_what_it_reads():
    assert write_idx(torch.tensor([[1, 2, 3], [4, 5, 255]], dtype=torch.uint8)) == TWO_BY_THREE
    assert read_idx(write_idx(torch.empty(0, 4, dtype=torch.uint8))).shape == (0, 4)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (
            TWO_BY_THREE[:-1],
            r"digits is truncated: its header announces shape \(2, 3\), which is 18 bytes, but it has 17",
        ),
        (TWO_BY_THREE + b"x", "digits has bytes after its end"),
        (TWO_BY_THREE[:7], "digits is truncated: its idx header of 12 bytes is cut at 7"),
        (b"\0\0", "digits is truncated: it has 2 bytes"),
        (b"\x1f\x8b\x08\x00" + bytes(20), "digits is no idx file of unsigned bytes: it starts with 1f8b0800"),
    ],
)
def test_what_is_wrong_is_said(content, message):
    with pytest.raises(DataError, match=message):
        read_idx(content, "digits")
