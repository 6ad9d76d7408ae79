"""The singular values of one part of a network: which way to find them, and what they are."""

from dataclasses import dataclass
from typing import Literal

import torch

from skiplens.core.axes import Float, Tensor
from skiplens.core.errors import DidNotConverge, InvalidInputError
from skiplens.core.memory import budget_bytes, require_fits
from skiplens.core.progress import Progress, silent
from skiplens.derivatives.jacobian.coupled import coupled_singular_values
from skiplens.derivatives.jacobian.linearised import Function, Linearised
from skiplens.derivatives.jacobian.per_sample import couples_samples, keeps_samples, sample_jacobians
from skiplens.linalg.probes import sphere
from skiplens.linalg.singular_values import all_singular_values, singular_density

Coupling = Literal["auto", "sample", "batch"]
Method = Literal["auto", "exact", "lanczos"]


_FEWEST_STEPS = 8
"""With fewer Lanczos steps a density says nothing."""


@dataclass(frozen=True)
class Spectrum:
    """Singular values, descending, with the share of all that each stands for.

    Attributes:
        values: All singular values, or nodes of their density.
        weights: The share of each; they add up to one.
        count: How many singular values there are.
        method: "exact", "low rank" (exact too) or "lanczos".
        coupled: Whether the samples of the batch were seen as coupled.
    """

    values: Float[Tensor, " values"]
    weights: Float[Tensor, " values"]
    count: int
    method: str
    coupled: bool


@dataclass(frozen=True)
class Part:
    """A function of a batch, where it is looked at, and its form without coupling of samples.

    Attributes:
        name: What to call it in errors.
        function: From the input of the part to its output.
        frozen: The same with batch statistics frozen; None where no batch norm couples samples.
        point: The input.
        samples: How many samples the batch has.
        channels: Channels of the batch norms that couple samples.
    """

    name: str
    function: Function
    frozen: Function | None
    point: Tensor
    samples: int
    channels: int


@dataclass(frozen=True)
class Effort:
    """How to find singular values, and how much may be spent.

    Attributes:
        coupling: Jacobians of single samples, of the whole batch, or of the batch where its samples are coupled.
        method: All singular values, their density, or all where that takes no more than `work` and `memory`.
        steps: Lanczos steps.
        probes: Random vectors of Lanczos.
        work: Floating operations that one exact spectrum may take with method="auto".
        memory: Bytes that may be used; half of what is free if None.
    """

    coupling: Coupling = "auto"
    method: Method = "auto"
    steps: int = 80
    probes: int = 4
    work: float = 1e12
    memory: int | None = None


def part_spectrum(part: Part, effort: Effort, generator: torch.Generator, progress: Progress = silent) -> Spectrum:
    """The singular values of the Jacobian of `part`; to be called within `transformable()`."""
    whole = Linearised(part.function, part.point)
    coupled = not keeps_samples(whole, part.samples) or couples_samples(whole, part.samples, generator)
    if not coupled:
        return _blockwise(part, whole, effort, generator)
    if effort.coupling == "sample":
        return _blockwise(part, _uncoupled(part, whole, generator), effort, generator)
    return _joint(part, whole, effort, generator, progress)


def _uncoupled(part: Part, whole: Linearised, generator: torch.Generator) -> Linearised:
    """The part with frozen statistics, or an error that says why there is no such form."""
    if not keeps_samples(whole, part.samples):
        raise InvalidInputError(
            f"{part.name!r} maps shape {whole.input_shape} to shape {whole.output_shape} for {part.samples} samples: "
            "its first axis is not the samples throughout. Ask for coupling='batch', or look at a part that keeps them."
        )
    frozen = whole if part.frozen is None else Linearised(part.frozen, part.point)
    if couples_samples(frozen, part.samples, generator):
        raise InvalidInputError(
            f"The samples of the batch depend on each other in {part.name!r}, and not only through the statistics of "
            "batch norm layers, which could be frozen. Ask for coupling='batch'."
        )
    return frozen


def _blockwise(part: Part, linearised: Linearised, effort: Effort, generator: torch.Generator) -> Spectrum:
    """The union of the singular values of each sample's Jacobian."""
    rows, columns = linearised.rows // part.samples, linearised.columns // part.samples
    if not _exactly(part, linearised, effort, (part.samples, rows, columns)):
        return _density(linearised, effort, generator, coupled=False)
    values = all_singular_values(sample_jacobians(linearised, part.samples))
    return _all(values.flatten().sort(descending=True).values, "exact", coupled=False)


def _joint(part: Part, whole: Linearised, effort: Effort, generator: torch.Generator, progress: Progress) -> Spectrum:
    """The singular values of the Jacobian of the whole batch."""
    dense = (1, whole.rows, whole.columns)
    if part.frozen is not None and keeps_samples(whole, part.samples):
        blocks = (part.samples, whole.rows // part.samples, whole.columns // part.samples)
        operations = _operations(*blocks) + _update_operations(part, whole)
        if operations < _operations(*dense) and _exactly(part, whole, effort, blocks, operations):
            try:
                return _through_low_rank(part, whole, generator, progress)
            except DidNotConverge:  # something else couples the samples as well: as if there were no frozen form
                pass
    if not _exactly(part, whole, effort, dense):
        return _density(whole, effort, generator, coupled=True)
    return _all(all_singular_values(sample_jacobians(whole, 1)[0]), "exact", coupled=True)


def _through_low_rank(part: Part, whole: Linearised, generator: torch.Generator, progress: Progress) -> Spectrum:
    assert part.frozen is not None, "asked for only where there is a frozen form"
    frozen = Linearised(part.frozen, part.point)
    values = coupled_singular_values(whole, frozen, part.samples, 2 * part.channels, generator, progress)
    return _all(values.to(whole.dtype), "low rank", coupled=True)


def _density(linearised: Linearised, effort: Effort, generator: torch.Generator, coupled: bool) -> Spectrum:
    """The density, from random vectors on the smaller side."""
    forward, adjoint = linearised.forward, linearised.adjoint
    if linearised.rows < linearised.columns:
        forward, adjoint = adjoint, forward
    size = min(linearised.rows, linearised.columns)
    steps = _steps_that_fit(linearised, effort)
    starts = sphere(size, effort.probes, generator).T.to(linearised.device, linearised.dtype)
    found = singular_density(forward, adjoint, starts, steps)
    return Spectrum(found.nodes, found.weights, size, "lanczos", coupled)


def _steps_that_fit(linearised: Linearised, effort: Effort) -> int:
    """The Lanczos steps asked for, or as many as memory has room for vectors."""
    each = effort.probes * (linearised.rows + linearised.columns) * linearised.dtype.itemsize
    budget = budget_bytes(linearised.device, effort.memory)
    fewest = min(effort.steps, _FEWEST_STEPS)
    what = f"The density of singular values of a {linearised.rows} × {linearised.columns} Jacobian"
    require_fits(fewest * each, what, "Give fewer samples, or ask for probes=1.", budget)
    return min(effort.steps, budget // each)


def _all(values: Tensor, method: str, coupled: bool) -> Spectrum:
    return Spectrum(values, torch.full_like(values, 1 / len(values)), len(values), method, coupled)


def _exactly(
    part: Part,
    linearised: Linearised,
    effort: Effort,
    shape: tuple[int, int, int],
    operations: float | None = None,
) -> bool:
    """Whether all singular values shall be computed from matrices of this shape, with so many operations."""
    count, rows, columns = shape
    # The matrices, twice in float64 for a decomposition, and their Gram matrices.
    needed = 8 * count * (3 * rows * columns + min(rows, columns) ** 2)
    budget = budget_bytes(linearised.device, effort.memory)
    if effort.method == "exact":
        what = f"All singular values of {part.name!r} ({count} Jacobian(s) of {rows} × {columns})"
        require_fits(needed, what, "Ask for method='lanczos', or give fewer samples.", budget)
        return True
    return effort.method == "auto" and needed <= budget and (operations or _operations(*shape)) <= effort.work


def _operations(count: int, rows: int, columns: int) -> float:
    """Floating operations of `count` decompositions."""
    small, large = sorted((rows, columns))
    return count * (2.0 * large * small**2 + 10.0 * small**3)


def _update_operations(part: Part, whole: Linearised) -> float:
    """The price of one secular equation for each of the four vectors of each channel.

    In operations of a decomposition, which run much faster one by one: measured as 100 for each entry of the (never
    formed) matrix of eigenvectors, and as 3e9 for what does not depend on the size.
    """
    return 4.0 * part.channels * (3e9 + 100 * float(min(whole.rows, whole.columns)) ** 2)
