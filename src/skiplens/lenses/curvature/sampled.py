"""Extremes, density, trace and norm of a matrix that is known by its products only."""

from dataclasses import dataclass
from typing import Any

import torch

from skiplens.core.axes import Tensor
from skiplens.core.errors import SkiplensError
from skiplens.core.progress import Progress
from skiplens.core.randomness import Randomness
from skiplens.lenses.curvature.options import SpectrumOptions
from skiplens.lenses.curvature.plan import Plan, plan
from skiplens.lenses.curvature.smoothing import sampled_curve
from skiplens.linalg.density import DensityOptions, SpectralDensity, spectral_density
from skiplens.linalg.density_intervals import (
    absolute_quantile_interval,
    ratio_of_means,
    share_below_interval,
    share_within_interval,
)
from skiplens.linalg.frobenius import Moments, root_estimate, trace_and_frobenius
from skiplens.linalg.lanczos import Eigenpairs, LanczosOptions, extreme_eigenpairs
from skiplens.linalg.operator import SymmetricOperator
from skiplens.linalg.trace import scatter_estimate
from skiplens.readings.curvature import FLAT, condition_of


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


def _density(operator: SymmetricOperator, planned: Plan, sampling: Sampling) -> SpectralDensity:
    options = DensityOptions(sampling.options.probes, sampling.options.steps, planned.at_once, planned.reorthogonalise)
    density = spectral_density(operator, sampling.randomness, options, sampling.progress)
    if not bool(torch.isfinite(density.nodes).all()):
        raise SkiplensError("The products with the matrix are NaN or infinite; look for a loss that overflows.")
    return density


def _extremes(operator: SymmetricOperator, planned: Plan, sampling: Sampling, density: SpectralDensity) -> _Ends:
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
    operator: SymmetricOperator, planned: Plan, sampling: Sampling, density: SpectralDensity, known: Tensor
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
