"""Extremes, density, trace and norm of a matrix that is known by its products only; when to form it instead."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor

from skiplens.base import InvalidInputError, Progress, Randomness, Settings, SkiplensError, refuse_if
from skiplens.base.memory import budget_bytes, readable, require_fits
from skiplens.curvature.operator import SPARE_VECTORS, Kind
from skiplens.curvature.reading import FLAT
from skiplens.linalg import LanczosOptions, SymmetricOperator, extreme_eigenpairs
from skiplens.linalg import density as densities
from skiplens.linalg.conditioning import SMALL_SHARE, condition_number
from skiplens.linalg.trace import Moments, root_estimate, scatter_estimate, trace_and_frobenius

Method = Literal["auto", "exact", "lanczos"]
_FEWEST_SCATTERED = 4  # the scatter of two or three probes is a poor guess of their error
SHARE_OF_VECTORS = 0.5  # the products of the operator need the rest
POINTS = 512
_WIDTHS_IN_SPAN = 100
_MARGIN = 6  # widths beyond the extremes, so that the density integrates to one


class SpectrumOptions(Settings):
    """Options of `hessian_spectrum`; see there."""

    method: Method = "auto"
    kind: Kind = "hessian"
    blocks: bool | tuple[str, ...] = False
    probes: int = 8
    steps: int = 40
    extremes: int = 1
    vectors: bool = False
    tolerance: float = 1e-4
    max_products: int = 500
    moment_products: int | None = None
    seed: int = 0
    memory: int | None = None

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
        refuse_if(not self.tolerance > 0, f"tolerance={self.tolerance}; the residual to stop at must be positive.")
        if self.vectors and not self.extremes:
            raise InvalidInputError("vectors=True keeps the eigenvectors of the extremes; ask for extremes=1 or more.")


FAR = 0.1  # of an end of the spectrum
SHORT = (
    "So few products do not reach the ends of the spectrum: the steepest direction may be steeper than the largest "
    "eigenvalue given here (four products on a small GPT-2: 1.4 to 1.7 times), and steps shorter."
)


def sampled_fields(
    operator: SymmetricOperator, options: SpectrumOptions, randomness: Randomness, progress: Progress
) -> dict[str, Any]:
    """What a reading says of an operator: extremes with residuals, everything else with error bars."""
    planned = plan(operator, options)
    drawing = densities.DensityOptions(options.probes, options.steps, planned.at_once, planned.reorthogonalise)
    density = densities.spectral_density(operator, randomness, drawing, progress)
    if not bool(torch.isfinite(density.nodes).all()):
        raise SkiplensError("The products with the matrix are NaN or infinite; look for a loss that overflows.")
    each = 0 if planned.extreme_basis is None else min(options.extremes, operator.size // 2)
    if each:
        search = LanczosOptions(options.tolerance, options.max_products, planned.extreme_basis)
        progress("extreme eigenvalues", 0, 1)
        pairs = extreme_eigenpairs(operator, randomness.child("extremes").torch(), each, each, search)
        progress("extreme eigenvalues", 1, 1)
        ends, residuals, vectors, searched = pairs.values, pairs.residuals, pairs.vectors, pairs.products
        unsure = 0.0 if bool(pairs.converged.all()) else float(residuals.max())
    else:  # the ends of the density, which have no vectors
        low, high = density.nodes[:, 0].argmin(), density.nodes[:, -1].argmax()
        ends, residuals = (torch.stack([of[low, 0], of[high, -1]]) for of in (density.nodes, density.residuals))
        vectors, searched, unsure = ends.new_zeros(operator.size, 0).to(operator.device, operator.dtype), 0, 0.0
    if planned.moment_products:
        progress("trace and norm", 0, 1)
        draws, known = randomness.child("moments").torch(), vectors if vectors.shape[1] else None
        moments = trace_and_frobenius(operator, planned.moment_products, draws, known)
        progress("trace and norm", 1, 1)
        searched += moments.trace.products
    else:  # the first two moments of a probe's quadrature are exact for the probe
        powers = [(density.weights * density.nodes**power).sum(1) * density.size for power in (1, 2)]
        first, second = (scatter_estimate(values, 0) for values in powers)
        moments = Moments(first, root_estimate(second))
    far = bool((residuals > FAR * ends.abs().max()).any())
    smallest = min(ends[0].item(), density.nodes.min().item())
    largest = max(ends[-1].item(), density.nodes.max().item())
    return _density_fields(density, smallest, largest) | {
        "parameters": operator.size,
        "largest": largest,
        "smallest": smallest,
        "extremes": ends.double(),
        "extreme_residuals": residuals.double(),
        "vectors": vectors if options.vectors else vectors.new_zeros(0, 0),
        "trace": moments.trace.value,
        "trace_error": moments.trace.standard_error,
        "frobenius_norm": moments.frobenius.value,
        "frobenius_error": moments.frobenius.standard_error,
        "rounding": max(1e-10, 10 * torch.finfo(operator.dtype).eps) * max(abs(smallest), abs(largest)),
        "products": density.probes * density.nodes.shape[1] + searched,
        "notes": (*notes_on(planned, options, unsure), *[SHORT] * (not each and far)),
    }


def _density_fields(density: densities.SpectralDensity, smallest: float, largest: float) -> dict[str, Any]:
    """What a reading says of a density between the extremes."""
    nodes, weights = density.merged()
    top = max(abs(smallest), abs(largest))
    least, most = densities.absolute_quantile_interval(density, SMALL_SHARE)
    width, grid = _grid(smallest, largest)
    heights, height_errors = density.smoothed(grid, width)
    return {
        "method": "lanczos",
        "nodes": nodes,
        "weights": weights,
        "condition_interval": (condition_number(top, most), condition_number(top, least)),
        "index_interval": densities.share_below_interval(density),
        "flat_interval": densities.share_within_interval(density, FLAT * top),
        "negative_mass_error": densities.ratio_of_means(density, lambda x: (-x).clamp_min(0), torch.abs)[1],
        "probes": density.probes,
        "steps": density.nodes.shape[1],
        "grid": grid,
        "density": heights,
        "density_error": height_errors,
        "smoothing_width": width,
    }


def notes_on(planned: "SpectrumPlan", options: SpectrumOptions, unsure: float = 0.0) -> Iterator[str]:
    """What was done differently to fit in memory, and how far off extremes may be that did not converge."""
    if not planned.reorthogonalise:
        yield "The Lanczos basis did not fit in memory and was not kept; the density is a little less sharp."
    elif planned.at_once < options.probes:
        yield f"The probes were multiplied {planned.at_once} at a time to fit in memory."
    if options.extremes and planned.extreme_basis is None:
        yield "There was no memory to search for the extremes; those of the density are given."
    if unsure:
        yield (
            "The search for the extreme eigenvalues used up its products before it converged; an eigenvalue lies "
            f"within {unsure:.2g} of each. Ask for more with max_products=…."
        )


MOST_EXACT = 3000
"""Up to this size `auto` takes all eigenvalues: seconds for the eigenvalues, as many products as parameters."""


def choose_method(operator: SymmetricOperator, options: SpectrumOptions) -> str:
    """``"exact"`` or ``"lanczos"``; exact is refused, with the memory it would need, where it does not fit."""
    budget = budget_bytes(operator.device, options.memory)
    needed = int(exact_bytes(operator) / SHARE_OF_VECTORS)
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
    return operator.size**2 * (2 * operator.dtype.itemsize + 3 * 8)


@dataclass(frozen=True)
class SpectrumPlan:
    """How many vectors are held at a time."""

    at_once: int  # probes that are multiplied as one block
    reorthogonalise: bool  # whether the whole Lanczos basis is kept
    extreme_basis: int | None  # vectors for the search of extremes; None where there is no room for one
    moment_products: int  # products for trace and Frobenius norm; 0 takes them from the density


def plan(operator: SymmetricOperator, options: SpectrumOptions) -> SpectrumPlan:
    """The plan that fits in the budget and holds the most vectors; refused where not even a few vectors fit."""
    vector = operator.size * operator.dtype.itemsize
    what = f"Lanczos with {operator.size:,} parameters"
    budget = int(budget_bytes(operator.device, options.memory) * SHARE_OF_VECTORS)
    require_fits(
        SPARE_VECTORS * vector,
        f"{what} ({SPARE_VECTORS} vectors of {readable(vector)})",
        "Free some memory, or choose fewer parameters with parameters=….",
        budget,
    )
    room = budget // max(vector, 1)
    with_basis = room // (min(options.steps, operator.size) + SPARE_VECTORS)
    at_once = min(options.probes, with_basis or room // SPARE_VECTORS)
    ends, largest = 2 * options.extremes, room // 2 - SPARE_VECTORS  # the search holds its basis twice while it grows
    searched = options.extremes > 0 and largest >= ends + 4
    # A third each for sketch, range and rest; five vectors are held for each of a third, and those known.
    wanted = options.moment_products
    wanted = 3 * max(options.probes, _FEWEST_SCATTERED) if wanted is None else wanted
    products = min(wanted, 3 * ((room - ends) // 6))
    basis = min(largest, max(4 * ends, 40)) if searched else None
    return SpectrumPlan(at_once, with_basis > 0, basis, products if products >= 6 else 0)


def exact_curve(eigenvalues: Tensor) -> dict[str, Any]:
    """The fields of a reading that hold a smoothed density on a grid, for eigenvalues that are all known."""
    width, grid = _grid(eigenvalues[0].item(), eigenvalues[-1].item())
    weights = torch.full_like(eigenvalues, 1 / len(eigenvalues))
    values = densities.normal_curves(eigenvalues[None], weights[None], grid.to(eigenvalues.device), width)[0]
    return {"grid": grid, "density": values, "density_error": torch.zeros_like(grid), "smoothing_width": width}


def _grid(smallest: float, largest: float) -> tuple[float, Tensor]:
    span = largest - smallest
    width = (span if span > 0 else max(abs(largest), 1.0)) / _WIDTHS_IN_SPAN
    return width, torch.linspace(smallest - _MARGIN * width, largest + _MARGIN * width, POINTS, dtype=torch.float64)
