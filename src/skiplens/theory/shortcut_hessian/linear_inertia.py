"""Eigenvalues below a level of the Hessian of a linear network, counted unit by unit without the matrix.

The Hessian depends on the weights before a unit only through the map Y that reaches it. So the last unit's weights can
be eliminated given Y, which leaves a quadratic form P in the change of Y alone; then the unit before it, and so on. The
signs of the eliminated blocks add up (Sylvester, Haynsworth). Every block has the size of one unit: the time grows
like depth, not like its cube.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import torch

from skiplens.core.axes import Tensor
from skiplens.theory.shortcut_hessian.arguments import require_dense_fits
from skiplens.theory.shortcut_hessian.counted import CountedSpectrum, Counts
from skiplens.theory.shortcut_hessian.inertia import factor
from skiplens.theory.shortcut_hessian.linear import across_factor, require_same_widths
from skiplens.theory.shortcut_hessian.linear_chain import LinearChain, LinearUnit, linear_chain
from skiplens.theory.shortcut_hessian.moments import SecondMoments

_RESOLUTION = 1e-9  # relative to the matrix's scale: how near to the level an eigenvalue may be miscounted
_INSTEAD = "Blocks of this size are needed at this level: ask for a level further from the eigenvalues of single units."


def linear_spectrum(units: Sequence[LinearUnit], moments: SecondMoments) -> CountedSpectrum:
    """All eigenvalues of the loss's Hessian by counting, in time and memory that grow linearly with depth.

    `.index` is one count; any eigenvalue or quantile takes about 50. Computed in float64 on the processor.
    """
    require_same_widths(units, moments)
    doubled = SecondMoments(*(_double(each) for each in (moments.inputs, moments.cross, moments.target_power)))
    return CountedSpectrum(LinearCounts(tuple(_double_unit(unit) for unit in units), doubled))


@dataclass(frozen=True, eq=False)
class LinearCounts(Counts):
    """The counting function of the eigenvalues of a linear network's Hessian."""

    units: tuple[LinearUnit, ...]
    moments: SecondMoments

    @property
    def size(self) -> int:
        """Number of parameters."""
        return _params(self.units)

    @cached_property
    def bound(self) -> float:
        """A number that every |λ| stays below, found by doubling until no eigenvalue lies outside."""
        bound = max(self._sweep(0.0, 1).scale, torch.finfo(torch.float64).tiny)
        while self(bound) < self.size or self(-bound) > 0:
            bound *= 2
        return bound

    def __call__(self, level: float) -> int:
        """Number of eigenvalues below `level`; those within rounding of it may be counted either way.

        Blocks that are nearly singular on their own make the form large and cost digits: then larger groups of units
        are eliminated together, in the end all of them.
        """
        group = 1
        while True:
            sweep = self._sweep(level, group)
            if sweep.lost_digits * torch.finfo(torch.float64).eps <= _RESOLUTION or group >= len(self.units):
                return sweep.negatives
            group *= 2

    def _sweep(self, level: float, group: int) -> "_Sweep":
        """Eliminate groups of so many units from the last to the first."""
        groups = [self.units[first : first + group] for first in range(0, len(self.units), group)]
        require_dense_fits(max(map(_params, groups)), self.moments.inputs, _INSTEAD)
        chains = [linear_chain(units) for units in groups]
        reached = _prefix_maps(chains)
        sweep = _Sweep(level, self.moments.slope(reached[-1]), self.moments.inputs)
        for chain, start in zip(reversed(chains), reversed(reached[:-1]), strict=True):
            sweep.eliminate(chain, start)
        return sweep


class _Sweep:
    """The elimination on its way: what is left is a quadratic form in the change of the map up to here."""

    def __init__(self, level: float, slope: Tensor, moment: Tensor) -> None:
        eye = torch.eye(len(slope), dtype=slope.dtype)
        self._level = level
        self._slope = slope  # the derivative of the loss by the map up to here
        self._form = torch.kron(moment, eye)  # P, for that map's columns stacked
        self._moment = moment
        self._onward = eye  # the map from here to the network's end
        self._growth = 0.0
        self.negatives = 0
        self.scale = 0.0
        """The largest entry of the Hessian's own diagonal blocks, or a bound of it."""

    @property
    def lost_digits(self) -> float:
        """By how much roundings were magnified on the way."""
        return self._growth / self.scale if self.scale else 1.0

    def eliminate(self, chain: LinearChain, start: Tensor) -> None:
        """Take the weights of `chain`, which the map `start` reaches, out of the form."""
        e, q = chain.places.inputs, chain.places.outputs
        into = chain.into @ start
        to_end = (into[e][:, :, None] * chain.onward.T[q][:, None, :]).flatten(1)  # change of the map by a parameter
        across = across_factor(chain, into @ self._slope.T)[e][:, q]
        block = to_end @ self._form @ to_end.T + across * across.T
        passed = torch.block_diag(*[chain.whole] * start.shape[1])
        turned = (chain.onward.T @ self._slope)[q][:, :, None] * chain.into[e][:, None, :]
        self._note_sizes(into, self._onward @ chain.onward, across, block)
        self._remove(block, to_end @ self._form @ passed + turned.flatten(1), passed)
        self._slope, self._onward = chain.whole.T @ self._slope, self._onward @ chain.whole

    def _remove(self, block: Tensor, coupling: Tensor, passed: Tensor) -> None:
        factored = factor(block - self._level * torch.eye(len(block), dtype=block.dtype))
        self.negatives += factored.negatives()
        form = passed.T @ self._form @ passed - coupling.T @ factored.solve(coupling)
        self._form = (form + form.T) / 2

    def _note_sizes(self, into: Tensor, onward: Tensor, across: Tensor, block: Tensor) -> None:
        gauss_newton = ((into @ self._moment) * into).sum(1).max() * onward.square().sum(0).max()
        residual = (across * across.T).abs().max()
        self.scale = max(self.scale, gauss_newton.item(), residual.item())
        self._growth = max(self._growth, block.abs().max().item())


def _prefix_maps(chains: list[LinearChain]) -> list[Tensor]:
    """The maps from the input to the start of each chain, and to the end of the last."""
    first = chains[0].whole
    maps = [torch.eye(first.shape[1], dtype=first.dtype)]
    for chain in chains:
        maps.append(chain.whole @ maps[-1])
    return maps


def _params(units: Sequence[LinearUnit]) -> int:
    return sum(matrix.numel() for unit in units for matrix in unit.matrices)


def _double(tensor: Tensor) -> Tensor:
    return tensor.double().cpu()


def _double_unit(unit: LinearUnit) -> LinearUnit:
    shortcut = None if unit.shortcut is None else _double(unit.shortcut)
    return LinearUnit(tuple(_double(matrix) for matrix in unit.matrices), shortcut)
