"""Memory that is taken once and handed out again for each group of pieces."""

import math

from skiplens.core.axes import Tensor
from skiplens.core.fresh_memory import fresh_empty

_SCRATCH_BYTES = {"cpu": 12 * 2**20, "cuda": 2**28}  # long enough for matrix products at full speed
_SCRATCH_SHARE = 1 / 8  # of a large buffer: shorter slices of many samples would mean more passes over the inputs
_BUFFER_SHARE = 1 / (1 + 2 * _SCRATCH_SHARE)  # a slice of gradients and what is kept for the next one


def buffer_bytes(room: int) -> int:
    """How much of `room` bytes a buffer may take, so that what is used beside it fits too."""
    return int(room * _BUFFER_SHARE)


class Buffer:
    """A flat tensor from which tensors are cut; fresh memory would cost as much time as filling it.

    What does not fit is taken anew, so a buffer of size 0 is an ordinary allocator.
    """

    def __init__(self, like: Tensor, size: int) -> None:
        """Reserve room for `size` numbers of the dtype and on the device of `like`."""
        self._like, self._size, self._used = like, size, 0
        self._flat: Tensor | None = None
        self._scratch: dict[int, Tensor] = {}

    def take(self, *shape: int) -> Tensor:
        """A tensor of this shape with whatever was there before; valid until `clear`."""
        count = math.prod(shape)
        if self._used + count > self._size:
            return self._like.new_empty(shape)
        if self._flat is None:
            self._flat = fresh_empty(self._like, self._size)
        taken = self._flat[self._used : self._used + count].view(shape)
        self._used += count
        return taken

    def clear(self) -> None:
        """Hand out everything again from the start."""
        self._used = 0

    @property
    def scratch_bytes(self) -> int:
        """How large scratch should be at most."""
        shortest = _SCRATCH_BYTES.get(self._like.device.type, 2**24)
        return max(shortest, int(self._size * self._like.element_size() * _SCRATCH_SHARE))

    def scratch(self, name: int, *shape: int) -> Tensor:
        """A tensor of this shape beside the others, valid until scratch of the same name is asked for again."""
        count = math.prod(shape)
        if name not in self._scratch or self._scratch[name].numel() < count:
            self._scratch[name] = fresh_empty(self._like, count)
        return self._scratch[name][:count].view(shape)
