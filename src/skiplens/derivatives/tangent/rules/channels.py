"""Where a layer's channels are: last (linear layers, layer norm) or second (convolutions, batch and group norm)."""

import math
from dataclasses import dataclass

from skiplens.core.axes import Float, Tensor


@dataclass(frozen=True)
class Channels:
    """The channels of a layer's output and their place; a batch axis may hold several pieces of each sample.

    Attributes:
        shape: Shape of a parameter with one number a channel (layer norm may have several axes).
        last: Whether channels are the last axes, or the axis after the batch.
    """

    shape: tuple[int, ...]
    last: bool

    @property
    def count(self) -> int:
        """How many channels there are."""
        return math.prod(self.shape)

    def by_position(self, tensor: Tensor, samples: int) -> Float[Tensor, "samples terms channels"]:
        """`tensor`, whose channels are last, with all positions of a sample joined."""
        return tensor.reshape(samples, -1, self.count)

    def sum_positions(self, tensor: Tensor, samples: int, part: slice) -> Float[Tensor, "samples params"]:
        """Each sample's sum over everything but the channels, for the rows `part` of the channels."""
        if self.last:
            sums = self.by_position(tensor, samples).sum(1)
        else:
            sums = tensor.reshape(samples, -1, self.count, tensor[0, 0].numel()).sum((1, 3))
        return sums.reshape(samples, *self.shape)[:, part].flatten(1)
