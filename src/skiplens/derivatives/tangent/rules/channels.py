"""Where a layer's channels are: last (linear layers, layer norm) or second (convolutions, batch and group norm)."""

import math
from dataclasses import dataclass

from skiplens.core.axes import Float, Tensor
from skiplens.derivatives.tangent.rules.rule import by_sample


@dataclass(frozen=True)
class Channels:
    """The channels of a layer's output and their place.

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

    def by_position(self, cotangent: Tensor, samples: int) -> Float[Tensor, "samples outputs terms channels"]:
        """A cotangent, whose channels are last, with all positions of a sample joined."""
        return by_sample(cotangent, samples).reshape(samples, cotangent.shape[1], -1, self.count)

    def sum_positions(self, cotangent: Tensor, samples: int, part: slice) -> Float[Tensor, "samples outputs params"]:
        """Sums over everything but samples, outputs and channels, for the rows `part` of the channels."""
        if self.last:
            sums = self.by_position(cotangent, samples).sum(2)
        else:
            pieces = by_sample(cotangent, samples)
            sums = pieces.reshape(*pieces.shape[:4], -1).sum((2, 4))
        return sums.unflatten(2, self.shape)[:, :, part].flatten(2)
