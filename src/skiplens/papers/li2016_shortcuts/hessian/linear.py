"""Loss, gradient and exact Hessian of linear residual networks in closed form, from second moments alone.

With R_k, L_k and M_kk' of `LinearChain`, G = W S_xx − S_yx, and all inputs (c, e) and outputs (b, q) on common axes,

    H[(c, b), (e, q)] = (R S_xx Rᵀ)[c, e] (LᵀL)[b, q] + F[c, q] F[e, b],

where F is M below the diagonal of blocks and R Gᵀ L above it. The first term is the Gauss–Newton part, positive
semidefinite of rank at most outputs × features; the second vanishes with G.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import torch
from torch import Tensor

from skiplens.base import Float, Int, InvalidInputError, refuse_if
from skiplens.base.memory import fresh_empty
from skiplens.linalg.second_moments import SecondMoments, require_finite
from skiplens.papers.li2016_shortcuts.hessian.activations import Matrices, check_weights, require_dense_fits


@dataclass(frozen=True, eq=False)
class LinearUnit:
    """The map h ↦ S h + W_n … W_1 h with a fixed shortcut S, or none; rectangular matrices are allowed."""

    matrices: tuple[Tensor, ...]  # W_1 to W_n in order of application
    shortcut: Tensor | None = None

    def __post_init__(self) -> None:
        """Refuse matrices that do not follow each other."""
        refuse_if(not self.matrices, "A unit needs at least one matrix; got none.")
        for matrix in self.matrices:
            require_finite(matrix, "weights")
        for earlier, later in pairwise(self.matrices):
            if later.shape[1] != earlier.shape[0]:
                raise InvalidInputError(
                    f"A matrix of shape {tuple(later.shape)} cannot follow one of shape {tuple(earlier.shape)}; "
                    "list the matrices of a unit in order of application."
                )
        if self.shortcut is not None and self.shortcut.shape != (self.outputs, self.features):
            raise InvalidInputError(
                f"The shortcut of a unit from {self.features} to {self.outputs} features must have the shape "
                f"{(self.outputs, self.features)}; got {tuple(self.shortcut.shape)}."
            )

    @property
    def features(self) -> int:
        """Width of what comes in."""
        return self.matrices[0].shape[1]

    @property
    def outputs(self) -> int:
        """Width of what goes out."""
        return self.matrices[-1].shape[0]


def shortcut_units(weights: Matrices, branch_depth: int = 2) -> tuple[LinearUnit, ...]:
    """The units of the n-shortcut linear network with these matrices and identity shortcuts."""
    units = check_weights(weights, branch_depth)
    identity = torch.eye(weights.shape[1], dtype=weights.dtype, device=weights.device)
    branches = weights.unflatten(0, (units, branch_depth))
    return tuple(LinearUnit(tuple(branch.unbind(0)), identity) for branch in branches.unbind(0))


def plain_units(weights: Matrices) -> tuple[LinearUnit, ...]:
    """The matrices of a plain linear network, each a unit without shortcut."""
    check_weights(weights, 1)
    return tuple(LinearUnit((matrix,)) for matrix in weights.unbind(0))


def linear_loss(units: Sequence[LinearUnit], moments: SecondMoments) -> Float[Tensor, ""]:
    """The loss 1/(2m) Σ ‖y − W x‖² of the network."""
    require_same_widths(units, moments)
    return moments.loss(linear_chain(units).whole)


def linear_gradient(units: Sequence[LinearUnit], moments: SecondMoments) -> Float[Tensor, " params"]:
    """The gradient Lᵀ_k G Rᵀ_k of the loss in the order of definition 5."""
    require_same_widths(units, moments)
    chain = linear_chain(units)
    by_place = chain.into @ moments.slope(chain.whole).T @ chain.onward
    return by_place[chain.inputs, chain.outputs]


def linear_hessian(
    units: Sequence[LinearUnit], moments: SecondMoments, part: str = "all", out: Tensor | None = None
) -> Float[Tensor, "params params"]:
    """The exact Hessian of the loss in the order of definition 5, or one of its two parts.

    Args:
        units: The network.
        moments: Those of its data.
        part: all, gauss_newton or residual.
        out: A matrix to write into. Being handed memory for a large new one takes about a third of the time of its
            entries, so whoever needs many Hessians keeps one.

    Examples:
        >>> from skiplens.linalg.second_moments import second_moments
        >>> from skiplens.papers.li2016_shortcuts.hessian import shortcut_units
        >>> x = torch.eye(4, dtype=torch.float64)
        >>> linear_hessian(shortcut_units(torch.zeros_like(x)[None], 1), second_moments(x, x)).diagonal().sum().item()
        4.0
    """
    if part not in ("all", "gauss_newton", "residual"):
        raise InvalidInputError(f"part must be all, gauss_newton or residual; got {part!r}.")
    require_same_widths(units, moments)
    chain = linear_chain(units)
    params, like = len(chain.inputs), chain.whole
    if out is None:
        instead = "linear_spectrum counts eigenvalues without the matrix and gives the index and any quantile."
        require_dense_fits(params, like, instead)
        out = fresh_empty(like, params, params)
    if out.shape != (params, params) or out.dtype != like.dtype or out.device != like.device:
        raise InvalidInputError(
            f"out must be a {params} × {params} matrix of {like.dtype} on {like.device}; "
            f"got {tuple(out.shape)} of {out.dtype} on {out.device}."
        )
    RSR = chain.into @ moments.inputs @ chain.into.T
    LL = chain.onward.T @ chain.onward
    F = across_factor(chain, chain.into @ moments.slope(chain.whole).T)
    flipped, first = F.T.contiguous(), 0
    for number, matrix in enumerate(matrix for unit in units for matrix in unit.matrices):
        c, b = chain.input_matrices == number, chain.output_matrices == number
        of_inputs, of_outputs = _spread(RSR[c], chain.inputs), _spread(LL[b], chain.outputs)
        across, back = _spread(F[c], chain.outputs), _spread(flipped[b], chain.inputs)
        rows = out[first : first + matrix.numel()].unflatten(0, matrix.T.shape)
        for column, row in enumerate(rows):  # one column of W_k at a time: its factors and its rows stay in the cache
            if part == "residual":
                torch.mul(across[column], back, out=row)
                continue
            torch.mul(of_inputs[column], of_outputs, out=row)
            if part == "all":
                row.addcmul_(across[column], back)
        first += matrix.numel()
    return out


def _spread(rows: Tensor, places: Tensor) -> Tensor:
    """The rows' entry for each parameter (`gather`, because indexing with a tensor is three times slower)."""
    return rows.gather(1, places.expand(len(rows), -1))


@dataclass(frozen=True, eq=False)
class LinearChain:
    """How every matrix W_k of the chain is reached from its start and reaches its end.

    The inputs of all matrices are stacked into one axis, their outputs into another.
    """

    into: Float[Tensor, "all_inputs features"]  # R_k stacked: start of the chain ↦ input of W_k
    onward: Float[Tensor, "outputs all_outputs"]  # L_k side by side: output of W_k ↦ end of the chain
    # M_kk' below the diagonal of blocks: output of W_k' ↦ input of the later W_k; zero elsewhere.
    between: Float[Tensor, "all_inputs all_outputs"]
    whole: Float[Tensor, "outputs features"]  # the map of the chain
    # The places of each parameter's column and row among all inputs and outputs, in the order of definition 5.
    inputs: Int[Tensor, " params"]
    outputs: Int[Tensor, " params"]
    input_matrices: Int[Tensor, " all_inputs"]  # number of the matrix that each input belongs to
    output_matrices: Int[Tensor, " all_outputs"]


def linear_chain(units: Sequence[LinearUnit]) -> LinearChain:
    """The maps between all matrices of these units, in one pass along the chain."""
    _require_chain(units)
    first = units[0].matrices[0]
    eye = torch.eye(units[0].features, dtype=first.dtype, device=first.device)
    # How a place is reached from the start, and from the output of each matrix before it.
    into, since = eye, eye.new_zeros(len(eye), 0)
    passed: list[tuple[Tensor, Tensor]] = []
    for unit in units:
        unit_into, unit_since = into, since
        for matrix in unit.matrices:
            passed.append((into, since))
            identity = torch.eye(len(matrix), dtype=matrix.dtype, device=matrix.device)
            into, since = matrix @ into, torch.cat([matrix @ since, identity], dim=1)
        if unit.shortcut is not None:
            into = into + unit.shortcut @ unit_into
            since = since + _padded(unit.shortcut @ unit_since, since.shape[1])
    between = torch.cat([_padded(before, since.shape[1]) for _, before in passed])
    return LinearChain(torch.cat([reached for reached, _ in passed]), since, between, into, *_places(units))


def _padded(rows: Tensor, columns: int) -> Tensor:
    return torch.nn.functional.pad(rows, (0, columns - rows.shape[1]))


def _places(units: Sequence[LinearUnit]) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Where the parameters lie among all inputs and outputs, and which matrix these belong to."""
    device = units[0].matrices[0].device
    shapes = torch.tensor([matrix.shape for unit in units for matrix in unit.matrices], device=device)
    numbers = torch.arange(len(shapes), device=device)
    inputs, outputs, first_input, first_output = [], [], 0, 0
    for rows, columns in shapes.tolist():
        inputs.append((first_input + torch.arange(columns, device=device)).repeat_interleave(rows))
        outputs.append((first_output + torch.arange(rows, device=device)).repeat(columns))
        first_input, first_output = first_input + columns, first_output + rows
    by_output, by_input = (numbers.repeat_interleave(shapes[:, axis]) for axis in (0, 1))
    return torch.cat(inputs), torch.cat(outputs), by_input, by_output


def across_factor(chain: LinearChain, pulled_slope: Tensor) -> Float[Tensor, "all_inputs all_outputs"]:
    """F: M below the diagonal of blocks, R Gᵀ L above it, zero on it; `pulled_slope` is R Gᵀ."""
    above = chain.input_matrices[:, None] < chain.output_matrices
    return torch.where(above, pulled_slope @ chain.onward, chain.between)


def require_same_widths(units: Sequence[LinearUnit], moments: SecondMoments) -> None:
    """Refuse units that make no chain, and moments of data that the network does not take."""
    _require_chain(units)
    if (units[-1].outputs, units[0].features) != moments.cross.shape:
        raise InvalidInputError(
            f"The network maps {units[0].features} features to {units[-1].outputs}, but the moments are of "
            f"{moments.cross.shape[1]} features and {moments.cross.shape[0]} targets."
        )


def _require_chain(units: Sequence[LinearUnit]) -> None:
    refuse_if(not units, "A network needs at least one unit; got none.")
    for earlier, later in pairwise(units):
        if earlier.outputs != later.features:
            raise InvalidInputError(
                f"A unit that takes {later.features} features cannot follow one that gives {earlier.outputs}."
            )
