"""Linear residual units in a row and the maps between any two of their matrices."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

import torch

from skiplens.core.axes import Float, Int, Tensor
from skiplens.core.errors import InvalidInputError
from skiplens.theory.shortcut_hessian.arguments import check_weights, require_finite


@dataclass(frozen=True, eq=False)
class LinearUnit:
    """The map h ↦ S h + W_n … W_1 h with a fixed shortcut S, or none; rectangular matrices are allowed."""

    matrices: tuple[Tensor, ...]
    """W_1 to W_n in order of application."""
    shortcut: Tensor | None = None

    def __post_init__(self) -> None:
        """Refuse matrices that do not follow each other."""
        _check_unit(self)

    @property
    def features(self) -> int:
        """Width of what comes in."""
        return self.matrices[0].shape[1]

    @property
    def outputs(self) -> int:
        """Width of what goes out."""
        return self.matrices[-1].shape[0]


def shortcut_units(
    weights: Float[Tensor, "matrices outputs features"], branch_depth: int = 2
) -> tuple[LinearUnit, ...]:
    """The units of the n-shortcut linear network with these matrices and identity shortcuts."""
    units = check_weights(weights, branch_depth)
    identity = torch.eye(weights.shape[1], dtype=weights.dtype, device=weights.device)
    branches = weights.unflatten(0, (units, branch_depth))
    return tuple(LinearUnit(tuple(branch.unbind(0)), identity) for branch in branches.unbind(0))


def plain_units(weights: Float[Tensor, "matrices outputs features"]) -> tuple[LinearUnit, ...]:
    """The matrices of a plain linear network, each a unit without shortcut."""
    check_weights(weights, 1)
    return tuple(LinearUnit((matrix,)) for matrix in weights.unbind(0))


@dataclass(frozen=True, eq=False)
class LinearChain:
    """How every matrix W_k of the chain is reached from its start and reaches its end.

    The inputs of all matrices are stacked into one axis, their outputs into another; `places` says where each
    parameter has its column and its row.
    """

    into: Float[Tensor, "all_inputs features"]
    """R_k stacked: start of the chain ↦ input of W_k."""
    onward: Float[Tensor, "outputs all_outputs"]
    """L_k side by side: output of W_k ↦ end of the chain."""
    between: Float[Tensor, "all_inputs all_outputs"]
    """M_kk' below the diagonal of blocks: output of W_k' ↦ input of the later W_k; zero elsewhere."""
    whole: Float[Tensor, "outputs features"]
    """The map of the chain."""
    places: "Places"


class Places(NamedTuple):
    """Where the parameters, in the order of definition 5, lie on the axes of all inputs and of all outputs."""

    inputs: Int[Tensor, " params"]
    """The place of each parameter's column."""
    outputs: Int[Tensor, " params"]
    """The place of each parameter's row."""
    input_matrices: Int[Tensor, " all_inputs"]
    """The number of the matrix that each input belongs to."""
    output_matrices: Int[Tensor, " all_outputs"]
    """The number of the matrix that each output belongs to."""


def linear_chain(units: Sequence[LinearUnit]) -> LinearChain:
    """The maps between all matrices of these units, in one pass along the chain."""
    check_chain(units)
    first = units[0].matrices[0]
    eye = torch.eye(units[0].features, dtype=first.dtype, device=first.device)
    place = _Place(eye, eye.new_zeros(len(eye), 0))
    passed: list[_Place] = []
    for unit in units:
        here = place
        for matrix in unit.matrices:
            passed.append(here)
            here = here.after(matrix)
        place = here if unit.shortcut is None else here.plus(unit.shortcut, place)
    between = torch.cat([_padded(each.since, place.since.shape[1]) for each in passed])
    into = torch.cat([each.into for each in passed])
    return LinearChain(into, place.since, between, place.into, _places(units, first.device))


class _Place(NamedTuple):
    """A place in the chain: how it is reached from the start, and from the output of each matrix before it."""

    into: Tensor
    since: Tensor

    def after(self, matrix: Tensor) -> "_Place":
        identity = torch.eye(len(matrix), dtype=matrix.dtype, device=matrix.device)
        return _Place(matrix @ self.into, torch.cat([matrix @ self.since, identity], dim=1))

    def plus(self, shortcut: Tensor, earlier: "_Place") -> "_Place":
        since = self.since + _padded(shortcut @ earlier.since, self.since.shape[1])
        return _Place(self.into + shortcut @ earlier.into, since)


def _padded(rows: Tensor, columns: int) -> Tensor:
    return torch.nn.functional.pad(rows, (0, columns - rows.shape[1]))


def _places(units: Sequence[LinearUnit], device: torch.device) -> Places:
    shapes = torch.tensor([matrix.shape for unit in units for matrix in unit.matrices], device=device)
    numbers = torch.arange(len(shapes), device=device)
    inputs, outputs, first_input, first_output = [], [], 0, 0
    for rows, columns in shapes.tolist():
        inputs.append((first_input + torch.arange(columns, device=device)).repeat_interleave(rows))
        outputs.append((first_output + torch.arange(rows, device=device)).repeat(columns))
        first_input, first_output = first_input + columns, first_output + rows
    by_output, by_input = (numbers.repeat_interleave(shapes[:, axis]) for axis in (0, 1))
    return Places(torch.cat(inputs), torch.cat(outputs), by_input, by_output)


def _check_unit(unit: LinearUnit) -> None:
    if not unit.matrices:
        raise InvalidInputError("A unit needs at least one matrix; got none.")
    for matrix in unit.matrices:
        require_finite(matrix, "weights")
    for earlier, later in pairwise(unit.matrices):
        if later.shape[1] != earlier.shape[0]:
            raise InvalidInputError(
                f"A matrix of shape {tuple(later.shape)} cannot follow one of shape {tuple(earlier.shape)}; "
                "list the matrices of a unit in order of application."
            )
    if unit.shortcut is not None and unit.shortcut.shape != (unit.outputs, unit.features):
        raise InvalidInputError(
            f"The shortcut of a unit from {unit.features} to {unit.outputs} features must have the shape "
            f"{(unit.outputs, unit.features)}; got {tuple(unit.shortcut.shape)}."
        )


def check_chain(units: Sequence[LinearUnit]) -> None:
    """Refuse units that do not follow each other."""
    if not units:
        raise InvalidInputError("A network needs at least one unit; got none.")
    for earlier, later in pairwise(units):
        if earlier.outputs != later.features:
            raise InvalidInputError(
                f"A unit that takes {later.features} features cannot follow one that gives {earlier.outputs}."
            )
