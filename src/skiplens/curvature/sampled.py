"""Extremes, density, trace and norm of a matrix that is known by its products only."""

from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor

from skiplens.base.errors import InvalidInputError, SkiplensError
from skiplens.base.memory import budget_bytes, readable, require_fits
from skiplens.base.progress import Progress
from skiplens.base.randomness import Randomness
from skiplens.base.settings import Settings, option
from skiplens.curvature.reading import FLAT, condition_of
from skiplens.linalg.density import (
    DensityOptions,
    SpectralDensity,
    absolute_quantile_interval,
    normal_curves,
    ratio_of_means,
    share_below_interval,
    share_within_interval,
    spectral_density,
)
from skiplens.linalg.lanczos import Eigenpairs, LanczosOptions, extreme_eigenpairs
from skiplens.linalg.operator import SymmetricOperator
from skiplens.linalg.trace import Moments, root_estimate, scatter_estimate, trace_and_frobenius

Method = Literal["auto", "exact", "lanczos"]

Kind = Literal["hessian", "gauss_newton", "fisher", "empirical_fisher"]


@dataclass(frozen=True)
class SpectrumOptions(Settings):
    """Options of `hessian_spectrum`."""

    method: Method = option("auto", "exact: all eigenvalues; lanczos: extremes and a sampled density; auto chooses")
    kind: Kind = option("hessian", "the matrix: hessian, gauss_newton, fisher or empirical_fisher")
    blocks: bool | tuple[str, ...] = option(
        False, "also the spectrum of each residual block's parameters alone: all blocks, or those named"
    )
    probes: int = option(8, "random vectors behind the density; their scatter is its error")
    steps: int = option(40, "Lanczos steps (products) for each of them")
    extremes: int = option(1, "eigenpairs looked for at each end; 0 takes what the density shows")
    vectors: bool = option(False, "keep the eigenvectors of the extremes in the reading")
    tolerance: float = option(1e-4, "residual at which an extreme is good enough, relative to the largest |eigenvalue|")
    max_products: int = option(500, "products spent on the extremes at most")
    moment_products: int | None = option(
        None,
        "products for trace and Frobenius norm: at least 6, or 0 to take them from the density; chosen if not given",
    )
    seed: int = option(0, "names the random vectors")
    memory: int | None = option(None, "bytes that may be used; half of what is free if not given")

    def __post_init__(self) -> None:
        """Refuse numbers that mean nothing."""
        super().__post_init__()
        if self.probes < 2 or self.steps < 2:
            raise InvalidInputError(
                f"probes={self.probes} and steps={self.steps}; ask for at least 2 of each: the scatter of the probes "
                "is the error of the density."
            )
        if self.extremes < 0 or self.max_products < 1:
            raise InvalidInputError(
                f"extremes={self.extremes} and max_products={self.max_products}; ask for 0 or more pairs at each end "
                "and at least 1 product."
            )
        if self.moment_products is not None and 0 != self.moment_products < 6:
            raise InvalidInputError(
                f"moment_products={self.moment_products}; ask for at least 6, or for 0 to take trace and norm from the "
                "density."
            )
        if not self.tolerance > 0:
            raise InvalidInputError(f"tolerance={self.tolerance}; the residual to stop at must be positive.")
        if self.vectors and not self.extremes:
            raise InvalidInputError("vectors=True keeps the eigenvectors of the extremes; ask for extremes=1 or more.")


@dataclass(frozen=True)
class Sampling:
    """How an operator is sampled."""

    options: SpectrumOptions
    randomness: Randomness
    progress: Progress


@dataclass(frozen=True, eq=False)
class _Ends:
    """The lowest and highest eigenvalues, ascending, each with a distance within which one lies."""

    values: Tensor
    residuals: Tensor
    vectors: Tensor
    products: int = 0
    notes: tuple[str, ...] = ()


def sampled_fields(operator: SymmetricOperator, sampling: Sampling) -> dict[str, Any]:
    """What a reading says of an operator: extremes with residuals, everything else with error bars."""
    options, planned = sampling.options, plan(operator, sampling.options)
    density = _density(operator, planned, sampling)
    ends = _extremes(operator, planned, sampling, density)
    moments = _moments(operator, planned, sampling, density, ends.vectors)
    smallest = min(ends.values[0].item(), density.nodes.min().item())
    largest = max(ends.values[-1].item(), density.nodes.max().item())
    nodes, weights = density.merged()
    top = max(abs(smallest), abs(largest))
    least, most = absolute_quantile_interval(density, 0.1)
    steps = density.nodes.shape[1]
    counted = moments.trace.products if planned.moment_products else 0
    return {
        "method": "lanczos",
        "parameters": operator.size,
        "nodes": nodes,
        "weights": weights,
        "largest": largest,
        "smallest": smallest,
        "extremes": ends.values.double(),
        "extreme_residuals": ends.residuals.double(),
        "vectors": ends.vectors if options.vectors else ends.vectors.new_zeros(0, 0),
        "trace": moments.trace.value,
        "trace_error": moments.trace.standard_error,
        "frobenius_norm": moments.frobenius.value,
        "frobenius_error": moments.frobenius.standard_error,
        "condition_interval": (condition_of(top, most), condition_of(top, least)),
        "index_interval": share_below_interval(density),
        "flat_interval": share_within_interval(density, FLAT * top),
        "negative_mass_error": ratio_of_means(density, lambda x: (-x).clamp_min(0), torch.abs)[1],
        "rounding": max(1e-10, 10 * torch.finfo(operator.dtype).eps) * top,
        "probes": density.probes,
        "steps": steps,
        "products": density.probes * steps + ends.products + counted,
        "notes": (*planned.notes(options), *ends.notes),
        **sampled_curve(density, smallest, largest),
    }


@dataclass(frozen=True)
class SpectrumPlan:
    """How many vectors are held at a time."""

    at_once: int
    """Probes that are multiplied as one block."""
    reorthogonalise: bool
    """Whether the whole Lanczos basis is kept."""
    extreme_basis: int | None
    """Vectors for the search of extremes; None where there is no room for one."""
    moment_products: int
    """Products for trace and Frobenius norm; 0 takes them from the density."""

    def notes(self, options: SpectrumOptions) -> tuple[str, ...]:
        """What was done differently to fit in memory."""
        notes = []
        if not self.reorthogonalise:
            notes.append(
                "The Lanczos basis did not fit in memory and was not kept; the density is a little less sharp."
            )
        elif self.at_once < options.probes:
            notes.append(f"The probes were multiplied {self.at_once} at a time to fit in memory.")
        if options.extremes and self.extreme_basis is None:
            notes.append("There was no memory to search for the extremes; those of the density are given.")
        return tuple(notes)


def _density(operator: SymmetricOperator, planned: SpectrumPlan, sampling: Sampling) -> SpectralDensity:
    options = DensityOptions(sampling.options.probes, sampling.options.steps, planned.at_once, planned.reorthogonalise)
    density = spectral_density(operator, sampling.randomness, options, sampling.progress)
    if not bool(torch.isfinite(density.nodes).all()):
        raise SkiplensError("The products with the matrix are NaN or infinite; look for a loss that overflows.")
    return density


def _extremes(
    operator: SymmetricOperator, planned: SpectrumPlan, sampling: Sampling, density: SpectralDensity
) -> _Ends:
    """The extreme eigenpairs, or the outermost nodes of the density where none are looked for."""
    options = sampling.options
    each = min(options.extremes, operator.size // 2)
    if planned.extreme_basis is None or not each:
        return _outermost(operator, density)
    search = LanczosOptions(options.tolerance, options.max_products, planned.extreme_basis)
    sampling.progress("extreme eigenvalues", 0, 1)
    pairs = extreme_eigenpairs(operator, sampling.randomness.child("extremes").torch(), each, each, search)
    sampling.progress("extreme eigenvalues", 1, 1)
    return _Ends(pairs.values, pairs.residuals, pairs.vectors, pairs.products, _unconverged(pairs))


def _outermost(operator: SymmetricOperator, density: SpectralDensity) -> _Ends:
    low, high = density.nodes[:, 0].argmin(), density.nodes[:, -1].argmax()
    values = torch.stack([density.nodes[low, 0], density.nodes[high, -1]])
    residuals = torch.stack([density.residuals[low, 0], density.residuals[high, -1]])
    none = torch.zeros(operator.size, 0, dtype=operator.dtype, device=operator.device)
    return _Ends(values, residuals, none)


def _moments(
    operator: SymmetricOperator, planned: SpectrumPlan, sampling: Sampling, density: SpectralDensity, known: Tensor
) -> Moments:
    """Trace and norm by Hutch++ beside the extremes; from the density itself where there is no room."""
    if not planned.moment_products:
        return density_moments(density)
    generator = sampling.randomness.child("moments").torch()
    sampling.progress("trace and norm", 0, 1)
    found = trace_and_frobenius(operator, planned.moment_products, generator, known if known.shape[1] else None)
    sampling.progress("trace and norm", 1, 1)
    return found


def density_moments(density: SpectralDensity) -> Moments:
    """Trace and Frobenius norm from the first two moments of each probe's quadrature, which are exact for the probe."""
    first, second = (
        scatter_estimate((density.weights * density.nodes**power).sum(1) * density.size, 0) for power in (1, 2)
    )
    return Moments(first, root_estimate(second))


def _unconverged(pairs: Eigenpairs) -> tuple[str, ...]:
    if bool(pairs.converged.all()):
        return ()
    worst = float(pairs.residuals.max())
    return (
        f"The search for the extreme eigenvalues used up its products before it converged; an eigenvalue lies within "
        f"{worst:.2g} of each. Ask for more with max_products=….",
    )


MOST_EXACT = 3000
"""Up to this size `auto` takes all eigenvalues: seconds for the eigenvalues, as many products as parameters."""

_SPARE_VECTORS = 6  # newest, previous, product, remainder, and a probe drawn in float64

_FEWEST_SCATTERED = 4  # the scatter of two or three probes is a poor guess of their error

_SHARE_OF_BUDGET = 0.5  # the products of the operator need the rest


def choose_method(operator: SymmetricOperator, options: SpectrumOptions) -> str:
    """``"exact"`` or ``"lanczos"``; exact is refused, with the memory it would need, where it does not fit."""
    needed, budget = exact_bytes(operator), budget_bytes(operator.device, options.memory)
    if options.method == "auto":
        return "exact" if operator.size <= MOST_EXACT and needed <= budget else "lanczos"
    if options.method == "exact":
        require_fits(
            needed,
            f"method='exact' of {operator.size:,} parameters (a matrix of {operator.size:,} × {operator.size:,})",
            "Use method='lanczos' (extremes, density, condition number and index with error bars), or choose fewer "
            "parameters with parameters=….",
            budget,
        )
    return options.method


def exact_bytes(operator: SymmetricOperator) -> int:
    """Memory for the matrix, the identity it is multiplied with, its copy in float64 and the eigenvalue solver."""
    return operator.size**2 * (2 * _itemsize(operator) + 3 * 8)


def plan(operator: SymmetricOperator, options: SpectrumOptions) -> SpectrumPlan:
    """The plan that fits in the budget and holds the most vectors; refused where not even a few vectors fit."""
    vector = operator.size * _itemsize(operator)
    budget = int(budget_bytes(operator.device, options.memory) * _SHARE_OF_BUDGET)
    if budget < _SPARE_VECTORS * vector:
        require_fits(
            _SPARE_VECTORS * vector,
            f"Lanczos with {operator.size:,} parameters ({_SPARE_VECTORS} vectors of {readable(vector)})",
            "Free some memory, or choose fewer parameters with parameters=….",
            budget,
        )
    room = budget // max(vector, 1)
    with_basis = room // (min(options.steps, operator.size) + _SPARE_VECTORS)
    at_once = min(options.probes, with_basis or room // _SPARE_VECTORS)
    return SpectrumPlan(at_once, with_basis > 0, _extreme_basis(room, options), _moment_products(room, options))


def _extreme_basis(room: int, options: SpectrumOptions) -> int | None:
    """The search holds its basis twice while it grows."""
    wanted = 2 * options.extremes
    largest = room // 2 - _SPARE_VECTORS
    if not options.extremes or largest < wanted + 4:
        return None
    return min(largest, max(4 * wanted, 40))


def _moment_products(room: int, options: SpectrumOptions) -> int:
    """A third each for sketch, range and rest; five vectors are held for each of a third, and those known."""
    wanted = 3 * max(options.probes, _FEWEST_SCATTERED)
    wanted = wanted if options.moment_products is None else options.moment_products
    most = 3 * ((room - 2 * options.extremes) // 6)
    return min(wanted, most) if min(wanted, most) >= 6 else 0


def _itemsize(operator: SymmetricOperator) -> int:
    return torch.empty(0, dtype=operator.dtype).element_size()


POINTS = 512

_WIDTHS_IN_SPAN = 100

_MARGIN = 6  # widths beyond the extremes, so that the density integrates to one


def sampled_curve(density: SpectralDensity, smallest: float, largest: float) -> dict[str, Any]:
    """The fields of a reading that hold a sampled density on a grid, with its error."""
    width, grid = _grid(smallest, largest)
    values, errors = density.smoothed(grid, width)
    return {"grid": grid, "density": values, "density_error": errors, "smoothing_width": width}


def exact_curve(eigenvalues: Tensor) -> dict[str, Any]:
    """The same fields for eigenvalues that are all known."""
    width, grid = _grid(eigenvalues[0].item(), eigenvalues[-1].item())
    weights = torch.full_like(eigenvalues, 1 / len(eigenvalues))
    values = normal_curves(eigenvalues[None], weights[None], grid.to(eigenvalues.device), width)[0]
    return {"grid": grid, "density": values, "density_error": torch.zeros_like(grid), "smoothing_width": width}


def _grid(smallest: float, largest: float) -> tuple[float, Tensor]:
    span = largest - smallest
    width = (span if span > 0 else max(abs(largest), 1.0)) / _WIDTHS_IN_SPAN
    return width, torch.linspace(smallest - _MARGIN * width, largest + _MARGIN * width, POINTS, dtype=torch.float64)
