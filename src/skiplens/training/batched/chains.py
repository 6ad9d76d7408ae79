"""Chains of square matrices, trained a few networks at a time so that what they touch stays in the cache."""

from abc import ABC, abstractmethod
from collections.abc import Callable

import torch

from skiplens.core.axes import Float, Int, Tensor
from skiplens.core.errors import InvalidInputError
from skiplens.training.batched.plan import Look
from skiplens.training.batched.program import Program
from skiplens.training.batched.tape import Instruction, play

CACHE_BYTES = 2**24
"""What the buffers of one chunk may take on a processor: a share of its last cache."""

DEVICE_BYTES = 2**32
"""What they may take on a GPU; a constant, since other chunks could mean other rounding there."""


class Chunk(ABC):
    """Some networks with their buffers and the instructions of an epoch.

    Attributes:
        weights: (matrices, nets, width, width), changed by `update`.
        rates: The learning rate of each network.
        steps: What an update takes away, the learning rate times the gradient; filled by `gradient`.
        gradient: The instructions that fill it.
    """

    def __init__(self, weights: Tensor, rates: Tensor) -> None:
        self.weights, self.rates = weights, rates
        self.steps = torch.empty_like(weights)
        self.gradient: list[Instruction] = []

    @abstractmethod
    def losses(self) -> Float[Tensor, " nets"]:
        """The losses that belong to the last gradient."""

    def advance(self, epochs: int) -> None:
        """Make some updates."""
        play([*self.gradient, self.update] * epochs)

    def update(self) -> None:
        """Make the step."""
        self.weights.sub_(self.steps)

    def look(self) -> Look:
        """Losses and norms as they are now."""
        play(self.gradient)
        norms = torch.linalg.matrix_norm(self.weights).mean(0)
        slopes = self.steps.square().sum((0, 2, 3)).sqrt() / self.rates
        return Look(self.losses(), norms, slopes)


class Chains(Program):
    """Networks that are chains of square matrices, in chunks."""

    def __init__(
        self,
        starts: Float[Tensor, "nets matrices width width"],
        rates: Float[Tensor, " nets"],
        build: Callable[[Tensor, Tensor], Chunk],
        bytes_of_a_net: int,
    ) -> None:
        self._rates, self._build = rates, build
        room = CACHE_BYTES if starts.device.type == "cpu" else DEVICE_BYTES
        self._nets_at_once = max(1, room // bytes_of_a_net)
        self._chunk(starts)

    def advance(self, start: int, stop: int) -> None:
        """Each chunk makes all its updates before the next one."""
        for chunk in self._chunks:
            chunk.advance(stop - start)

    def look(self, epoch: int) -> Look:
        """Of all chunks."""
        looks = [chunk.look() for chunk in self._chunks]
        return Look(*(torch.cat([getattr(look, name) for look in looks]) for name in Look.__annotations__))

    def parameters(self) -> dict[str, Tensor]:
        """The matrices, (nets, matrices, width, width)."""
        return {"weights": torch.cat([chunk.weights.transpose(0, 1) for chunk in self._chunks])}

    def state(self) -> dict[str, Tensor]:
        """The matrices are all there is."""
        return self.parameters()

    def restore(self, state: dict[str, Tensor]) -> None:
        """Start from other matrices."""
        self._chunk(state["weights"])

    def keep(self, nets: Int[Tensor, " kept"]) -> None:
        """Put the networks that are left together anew."""
        weights = self.parameters()["weights"][nets]
        self._rates = self._rates[nets]
        self._chunk(weights)

    def _chunk(self, weights: Tensor) -> None:
        places = range(0, max(1, len(weights)), self._nets_at_once)
        parts = [slice(start, start + self._nets_at_once) for start in places]
        # Copies, also where nothing moves: they are trained in place.
        own = [weights[part].transpose(0, 1).clone(memory_format=torch.contiguous_format) for part in parts]
        self._chunks = [self._build(mine, self._rates[part]) for mine, part in zip(own, parts, strict=True)]


def check_starts(starts: Tensor, rates: Tensor, branch_depth: int, features: int) -> None:
    """Refuse starts that are no stack of chains of square matrices, or that do not fit rates and data."""
    if starts.ndim != 4 or starts.shape[2] != starts.shape[3] or 0 in starts.shape:
        raise InvalidInputError(
            f"starts have shape {tuple(starts.shape)}; wanted (nets, matrices, width, width), as `drawn_starts` gives."
        )
    if rates.shape != starts.shape[:1] or not bool((rates > 0).all()):
        raise InvalidInputError(
            f"learning_rates have shape {tuple(rates.shape)}; wanted one number above 0 for each of {len(starts)} nets."
        )
    if branch_depth < 1 or starts.shape[1] % branch_depth:
        raise InvalidInputError(
            f"{starts.shape[1]} matrices cannot be divided into units of {branch_depth}; choose another depth."
        )
    if features != starts.shape[2]:
        raise InvalidInputError(f"The matrices are {starts.shape[2]} wide, but the data have {features} features.")
