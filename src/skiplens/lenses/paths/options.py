"""What can be asked of a path spectrum."""

from dataclasses import dataclass
from typing import Literal, get_args

from skiplens.core.errors import InvalidInputError
from skiplens.core.settings import Settings, option

Of = Literal["signal", "jacobian", "gradient"]


@dataclass(frozen=True)
class PathOptions(Settings):
    """Options of `path_spectrum`."""

    seed: int = option(0, "names the random directions and signs")
    directions: int = option(1, "random directions to average over (jacobian and gradient)")
    signs: int = option(0, "draws of random signs for the incoherent energies; at least 2, or 0 for none")
    blocks: bool = option(False, "also the contribution of each block, at the price of another spectrum")
    pairs: bool = option(
        False, "also the contribution of each pair of blocks, at the price of a spectrum for each block"
    )
    weights: bool = option(
        False, "also the gradient of each block's weights, by the branches behind them and by whole paths (gradient)"
    )
    max_order: int | None = option(None, "longest paths to follow, in branches; all if not given")
    centre: bool = option(False, "remove the mean over the last axis of the output, which a softmax does not see")
    centre_samples: bool = option(False, "remove the mean over the samples, which tells none from another")
    memory: int | None = option(None, "bytes that may be used; half of what is free if not given")

    def __post_init__(self) -> None:
        """Refuse numbers that mean nothing."""
        super().__post_init__()
        if self.directions < 1:
            raise InvalidInputError(f"directions={self.directions}; ask for at least 1.")
        if self.signs < 0 or self.signs == 1:
            raise InvalidInputError(f"signs={self.signs}; ask for 0 (none) or at least 2, which give an error bar.")
        if self.max_order is not None and self.max_order < 0:
            raise InvalidInputError(f"max_order={self.max_order}; the shortest paths have order 0.")


def require_of(of: str) -> None:
    """Refuse to decompose anything but the three things that can be."""
    if of not in get_args(Of):
        raise InvalidInputError(f"of={of!r}; ask for one of {', '.join(map(repr, get_args(Of)))}.")
