"""Where a layer's channels are: last (linear layers, layer norm) or second (convolutions, batch and group norm)."""

from dataclasses import dataclass

from skiplens.core.axes import Float, Tensor


@dataclass(frozen=True)
class Channels:
    """The channels of a layer's output and their place; a batch axis may hold several pieces of each sample."""

    count: int
    last: bool

    def by_position(self, tensor: Tensor, samples: int) -> Float[Tensor, "samples terms channels"]:
        """`tensor`, whose channels are last, with all positions of a sample joined."""
        return tensor.reshape(samples, -1, self.count)

    def sum_positions(self, tensor: Tensor, samples: int) -> Float[Tensor, "samples channels"]:
        """Each sample's sum over everything but the channels."""
        if self.last:
            return self.by_position(tensor, samples).sum(1)
        return tensor.reshape(samples, -1, self.count, tensor[0, 0].numel()).sum((1, 3))
