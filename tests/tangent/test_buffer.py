import torch

from skiplens.tangent.gradients import Buffer, buffer_bytes


def test_pieces_do_not_overlap_until_cleared():
    buffer = Buffer(torch.empty(0), 10)
    first, second = buffer.take(2, 3), buffer.take(4)
    first.fill_(1), second.fill_(2)
    assert first.sum() == 6
    buffer.clear()
    assert buffer.take(6).data_ptr() == first.data_ptr()


def test_what_does_not_fit_is_taken_anew():
    buffer = Buffer(torch.empty(0, dtype=torch.float32), 4)
    large = buffer.take(5)
    assert (large.shape, large.dtype) == ((5,), torch.float32)
    assert buffer.take(4).data_ptr() != large.data_ptr()


def test_scratch_of_one_name_is_the_same_memory():
    buffer = Buffer(torch.empty(0), 0)
    first, other = buffer.scratch(0, 6), buffer.scratch(1, 6)
    assert buffer.scratch(0, 2, 3).data_ptr() == first.data_ptr() != other.data_ptr()


def test_scratch_grows_with_the_buffer_and_both_fit():
    room = 2**32
    size = buffer_bytes(room)
    buffer = Buffer(torch.empty(0, dtype=torch.float32), size // 4)
    assert size // 9 < buffer.scratch_bytes < size // 7
    assert size + 2 * buffer.scratch_bytes <= room
