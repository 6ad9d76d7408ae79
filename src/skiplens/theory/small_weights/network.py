"""Theorem 1: a 2-shortcut ReLU network with biases that maps every input to its target with small weights."""

from dataclasses import dataclass
from typing import Literal, NamedTuple

import torch

from skiplens.core.axes import Float, Tensor
from skiplens.core.errors import InvalidInputError

UnitKind = Literal["saturated", "printed"]


class BiasedUnits(NamedTuple):
    """Units h + W_2 relu(W_1 h + b) with all their entries."""

    first: Float[Tensor, "units width width"]
    bias: Float[Tensor, "units width"]
    second: Float[Tensor, "units width width"]


@dataclass(frozen=True, eq=False)
class SmallWeightNetwork:
    """Units that each move one point and leave all others where they are (lemma 1).

    A unit is stored by where its point is (`sources`) and by how far it goes (`moves`). With the margin γ = rho²/8 and
    a step of length δ, the printed unit has one active hidden neuron and ‖W_1‖ = ‖W_2‖ = √(δ/γ). It magnifies rounding
    exponentially; the saturated unit has two, whose difference is flat at the point, and twice those norms.
    """

    sources: Float[Tensor, "units width"]
    moves: Float[Tensor, "units width"]
    margin: float
    kind: UnitKind

    @property
    def units(self) -> int:
        """Number of residual units (R)."""
        return len(self.sources)

    @property
    def width(self) -> int:
        """Number of features."""
        return self.sources.shape[1]

    def norms(self) -> Float[Tensor, " units"]:
        """The Frobenius norm of each W_1, which is also that of W_2."""
        scale = 2.0 if self.kind == "saturated" else 1.0
        return scale * (self.moves.norm(dim=1) / self.margin).sqrt()

    @property
    def largest_norm(self) -> float:
        """The largest Frobenius norm of any weight matrix."""
        return self.norms().max().item() if self.units else 0.0

    @property
    def log_lipschitz_bound(self) -> float:
        """Log of Π (1 + ‖W_1‖ ‖W_2‖): distances grow at most by its exponential."""
        return torch.log1p(self.norms().square()).sum().item()

    @property
    def is_injective(self) -> bool:
        """Whether every unit has ‖W_1‖ ‖W_2‖ < 1, so that it cannot merge two points."""
        return self.largest_norm < 1

    def matrices(self, first: int = 0, last: int | None = None) -> BiasedUnits:
        """The weights and biases of the units from `first` up to, not including, `last`."""
        sources, moves = self.sources[first:last], self.moves[first:last]
        count, width = sources.shape
        W_1, b, W_2 = (sources.new_zeros(count, *shape) for shape in ((width, width), (width,), (width, width)))
        hidden = self._hidden(moves)
        for place, (gain, threshold, weight) in enumerate(hidden):
            W_1[:, place] = gain[:, None] * sources
            b[:, place] = -gain * threshold
            W_2[:, :, place] = weight[:, None] * moves
        if self.kind == "printed":
            b[:] = b[:, :1]  # lemma 1 prints a scalar, added to every hidden neuron; the others have no way out
        return BiasedUnits(W_1, b, W_2)

    def __call__(self, inputs: Float[Tensor, "samples width"]) -> Float[Tensor, "samples width"]:
        """The outputs of the network."""
        if inputs.ndim != 2 or inputs.shape[1] != self.width:
            raise InvalidInputError(f"The network takes (samples, {self.width}); got {tuple(inputs.shape)}.")
        hidden = self._hidden(self.moves)
        gains, thresholds, weights = (torch.stack(part, dim=1) for part in zip(*hidden, strict=True))
        h = inputs.to(self.sources.dtype)
        for a, move, c, theta, w in zip(self.sources, self.moves, gains, thresholds, weights, strict=True):
            active = torch.relu(c * ((h @ a)[:, None] - theta))
            h = h + (active @ w)[:, None] * move
        return h

    def _hidden(self, moves: Tensor) -> list[tuple[Tensor, Tensor, Tensor]]:
        """For each active hidden neuron: its gain c, its threshold θ and its output weight; it fires at a · h > θ."""
        gamma, delta = self.margin, moves.norm(dim=1)
        if self.kind == "printed":
            c = (delta / gamma).sqrt()
            return [(c, torch.full_like(c, 1 - gamma), 1 / (delta * gamma).sqrt())]
        c = (2 * delta / gamma).sqrt()
        up = 2 / (c * gamma)
        return [(c, torch.full_like(c, 1 - gamma), up), (c, torch.full_like(c, 1 - gamma / 2), -up)]
