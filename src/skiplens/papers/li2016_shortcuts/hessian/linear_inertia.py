"""Eigenvalues below a level of the Hessian of a linear network, counted unit by unit without the matrix.

The Hessian depends on the weights before a unit only through the map Y that reaches it. So the last unit's weights can
be eliminated given Y, which leaves a quadratic form P in the change of Y alone; then the unit before it, and so on. The
signs of the eliminated blocks add up (Sylvester, Haynsworth). Every block has the size of one unit: the time grows
like depth, not like its cube.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import torch
from torch import Tensor

from skiplens.base import Float, InvalidInputError
from skiplens.linalg.second_moments import SecondMoments
from skiplens.papers.li2016_shortcuts.hessian.activations import require_dense_fits
from skiplens.papers.li2016_shortcuts.hessian.linear import LinearUnit, across_factor, linear_chain, require_same_widths
from skiplens.papers.li2016_shortcuts.hessian.spectrum import CountedSpectrum

_RESOLUTION = 1e-9  # relative to the matrix's scale: how near to the level an eigenvalue may be miscounted
_KEPT_BYTES = 2**28  # what is prepared for single units is kept for the next count if it is smaller than this
_INSTEAD = "Blocks of this size are needed at this level: ask for a level further from the eigenvalues of single units."


def linear_spectrum(units: Sequence[LinearUnit], moments: SecondMoments, accuracy: float = 2.0**-50) -> CountedSpectrum:
    """All eigenvalues of the loss's Hessian by counting, in time and memory that grow linearly with depth.

    `.index` is one count; any eigenvalue or quantile takes about one for each binary digit. Computed in float64 on the
    processor.

    Args:
        units: The network.
        moments: Those of its data.
        accuracy: Error of each eigenvalue relative to the largest.
    """
    if not 2.0**-51 <= accuracy < 1:
        raise InvalidInputError(f"The accuracy must lie between float64's rounding and 1; got {accuracy!r}.")
    require_same_widths(units, moments)
    doubled = SecondMoments(*(each.double().cpu() for each in (moments.inputs, moments.cross, moments.target_power)))
    double_units = []
    for unit in units:
        shortcut = None if unit.shortcut is None else unit.shortcut.double().cpu()
        double_units.append(LinearUnit(tuple(matrix.double().cpu() for matrix in unit.matrices), shortcut))
    return LinearSpectrum(tuple(double_units), doubled, accuracy)


@dataclass(frozen=True, eq=False)
class LinearSpectrum(CountedSpectrum):
    """The eigenvalues of a linear network's Hessian."""

    units: tuple[LinearUnit, ...]
    moments: SecondMoments
    accuracy: float

    @property
    def size(self) -> int:
        """Number of parameters."""
        return _params(self.units)

    @cached_property
    def bound(self) -> float:
        """A number that every |λ| stays below, found by doubling until no eigenvalue lies outside."""
        bound = max(self._swept(0.0, 1).scale, torch.finfo(torch.float64).tiny)
        while self.count_below(bound) < self.size or self.count_below(-bound) > 0:
            bound *= 2
        return bound

    def count_below(self, level: float) -> int:
        """Number of eigenvalues below `level`; those within rounding of it may be counted either way.

        Blocks that are nearly singular on their own make the form large and cost digits: then larger groups of units
        are eliminated together, in the end all of them.
        """
        group = 1
        while True:
            swept = self._swept(level, group)
            magnified = swept.growth / swept.scale if swept.scale else 1.0  # roundings on the way
            if magnified * torch.finfo(torch.float64).eps <= _RESOLUTION or group >= len(self.units):
                return swept.negatives
            group *= 2

    def _swept(self, level: float, group: int) -> "_Sweep":
        """Groups of so many units eliminated from the last to the first."""
        largest = max(_params(self.units[first : first + group]) for first in range(0, len(self.units), group))
        require_dense_fits(largest, self.moments.inputs, _INSTEAD)
        outputs = torch.eye(self.units[-1].outputs, dtype=torch.float64)
        sweep = _Sweep(level, torch.kron(self.moments.inputs, outputs))
        keep = group == 1 and 2 * 8 * largest**2 * len(self.units) <= _KEPT_BYTES
        for step in self._single_steps if keep else _steps(self.units, self.moments, group):
            sweep.eliminate(step)
        return sweep

    @cached_property
    def _single_steps(self) -> list["_Step"]:
        return list(_steps(self.units, self.moments, 1))


class _Step(NamedTuple):
    """What the elimination of one group of units needs, whatever the level."""

    to_end: Tensor  # derivative of the map at the group's end with respect to each parameter
    passed: Tensor  # and with respect to the map at its start
    residual: Tensor  # second derivatives of two parameters of the group, without the form at its end
    turned: Tensor  # second derivatives of a parameter and the map at the group's start, likewise
    scale: float  # a bound of the entries of the Hessian's own diagonal block


def _steps(units: Sequence[LinearUnit], moments: SecondMoments, group: int) -> Iterator[_Step]:
    """The steps from the last group to the first."""
    chains = [linear_chain(units[first : first + group]) for first in range(0, len(units), group)]
    reached = [torch.eye(units[0].features, dtype=moments.inputs.dtype)]  # maps from the input to each chain's start
    for chain in chains:
        reached.append(chain.whole @ reached[-1])
    slope = moments.slope(reached[-1])  # the derivative of the loss with respect to the map up to here
    onward = torch.eye(len(slope), dtype=slope.dtype)  # the map from here to the network's end
    for chain, start in zip(reversed(chains), reversed(reached[:-1]), strict=True):
        into, e, q = chain.into @ start, chain.inputs, chain.outputs
        to_end = (into[e][:, :, None] * chain.onward.T[q][:, None, :]).flatten(1)
        turned = ((chain.onward.T @ slope)[q][:, :, None] * chain.into[e][:, None, :]).flatten(1)
        across = across_factor(chain, into @ slope.T)[e][:, q]
        residual = across * across.T
        passed = torch.block_diag(*[chain.whole] * start.shape[1])
        to_output = (onward @ chain.onward).square().sum(0).max()
        gauss_newton = (((into @ moments.inputs) * into).sum(1).max() * to_output).item()
        yield _Step(to_end, passed, residual, turned, max(gauss_newton, residual.abs().max().item()))
        slope, onward = chain.whole.T @ slope, onward @ chain.whole


class _Sweep:
    """The elimination on its way: what is left is a quadratic form in the change of the map up to here."""

    def __init__(self, level: float, form: Tensor) -> None:
        self._level = level
        self._form = form  # P, for that map's columns stacked
        self.negatives = 0
        self.scale = self.growth = 0.0  # of the Hessian's own blocks, and of the blocks that were eliminated

    def eliminate(self, step: _Step) -> None:
        """Take the weights of this step out of the form."""
        carried = step.to_end @ self._form
        block = (carried @ step.to_end.T).add_(step.residual)
        self.scale = max(self.scale, step.scale)
        self.growth = max(self.growth, block.abs().max().item())
        block.diagonal().sub_(self._level)
        coupling = (carried @ step.passed).add_(step.turned)
        factored = Factored(block)
        self.negatives += factored.negatives()
        form = step.passed.T @ self._form @ step.passed - coupling.T @ factored.solve(coupling)
        self._form = (form + form.T) / 2


def _params(units: Sequence[LinearUnit]) -> int:
    return sum(matrix.numel() for unit in units for matrix in unit.matrices)


class Factored:
    """The pivoted factors L D Lᵀ of a symmetric matrix; only its lower triangle is read."""

    def __init__(self, matrix: Float[Tensor, "size size"]) -> None:
        self._factors, self._pivots, _ = torch.linalg.ldl_factor_ex(matrix)

    def negatives(self) -> int:
        """Number of negative eigenvalues: a 2×2 pivot of Bunch and Kaufman has exactly one."""
        single = self._pivots > 0
        return int((single & (self._factors.diagonal() < 0)).sum()) + int((~single).sum()) // 2

    def solve(self, right: Tensor) -> Tensor:
        """The matrix's inverse times `right`."""
        return torch.linalg.ldl_solve(self._factors, self._pivots, right)


def count_negative(matrix: Float[Tensor, "rows columns"], shift: float = 0.0) -> int:
    """Number of eigenvalues of a symmetric matrix below `shift`, several times faster than the eigenvalues.

    Eigenvalues within rounding (about machine epsilon times the largest one) of `shift` may be counted either way.
    """
    if matrix.shape[0] != matrix.shape[1]:
        raise InvalidInputError(f"Inertia needs a square symmetric matrix; got shape {tuple(matrix.shape)}.")
    if shift:
        matrix = matrix.clone()
        matrix.diagonal().sub_(shift)
    return Factored(matrix).negatives()
