"""Trace of an operator from products with random vectors: Hutchinson, Hutch++ and XTrace, each with its error."""

import math
from dataclasses import dataclass

import torch

from skiplens.core.axes import Float, Tensor
from skiplens.core.errors import InvalidInputError
from skiplens.linalg.operator import SymmetricOperator
from skiplens.linalg.probes import draw


@dataclass(frozen=True)
class TraceEstimate:
    """An estimate of a trace, its standard error and the number of matrix-vector products it took."""

    value: float
    standard_error: float
    products: int


def hutchinson(
    operator: SymmetricOperator, products: int, generator: torch.Generator, distribution: str = "rademacher"
) -> TraceEstimate:
    """The mean of vᵀAv over random v: unbiased, error ~ ‖A‖_F √(2 / products).

    Args:
        operator: The matrix A.
        products: Number of probes, at least 2 (the error comes from their scatter).
        generator: Source of the probes.
        distribution: ``"rademacher"``, ``"gaussian"`` or ``"sphere"``.
    """
    require_products(products, at_least=2, estimator="hutchinson")
    probes = draw(operator, products, distribution, generator)
    return scatter_estimate((probes * (operator @ probes)).sum(0), products)


def hutch_plus_plus(operator: SymmetricOperator, products: int, generator: torch.Generator) -> TraceEstimate:
    """Trace on a sketched range, exactly, plus Hutchinson on the rest: error ~ 1 / products for positive matrices.

    Meyer, Musco, Musco & Woodruff 2021, algorithm 1. A third of the products goes to each of sketch, range and rest.
    """
    require_products(products, at_least=6, estimator="hutch_plus_plus")
    sketch_size = min(products // 3, operator.size)
    Q = torch.linalg.qr(operator @ draw(operator, sketch_size, "rademacher", generator)).Q
    on_range = (Q * (operator @ Q)).sum().item()
    rest = draw(operator, products - 2 * sketch_size, "rademacher", generator)
    rest = rest - Q @ (Q.T @ rest)
    estimate = scatter_estimate((rest * (operator @ rest)).sum(0), products)
    return TraceEstimate(on_range + estimate.value, estimate.standard_error, products)


def xtrace(operator: SymmetricOperator, products: int, generator: torch.Generator) -> TraceEstimate:
    """Hutch++ with every probe in both roles: leave one out, average; the most exact of the three per product.

    Epperly, Tropp & Webber 2024, section 2.1, with probes on the sphere and their normalisation (section 2.3).
    The trace is exact where the probes span the whole space (products ≥ 2 · size).
    """
    require_products(products, at_least=4, estimator="xtrace")
    m = products // 2
    if m >= operator.size:
        return TraceEstimate(operator.dense().trace().item(), 0.0, operator.size)
    return scatter_estimate(_leave_one_out(operator, draw(operator, m, "sphere", generator)), 2 * m)


def _leave_one_out(operator: SymmetricOperator, omega: Float[Tensor, "size probes"]) -> Float[Tensor, " probes"]:
    n, m = omega.shape
    Y = operator @ omega
    Q, R = torch.linalg.qr(Y)
    Z = operator @ Q
    H, W, T = Q.T @ Z, Q.T @ omega, Z.T @ omega
    # The range of Y without column i is Q (I - s_i s_iᵀ), s_i the normalised column i of R^{-T}.
    S = torch.linalg.solve_triangular(_invertible(R).T, torch.eye(m, dtype=R.dtype, device=R.device), upper=False)
    S = S / S.norm(dim=0)
    U = W - S * (S * W).sum(0)
    inside = H.trace() - (S * (H @ S)).sum(0)
    outside = (omega * Y).sum(0) - 2 * (T * U).sum(0) + (U * (H @ U)).sum(0)
    scale = (n - m + 1) / (n - (U * U).sum(0)).clamp_min(torch.finfo(S.dtype).tiny)
    return inside + scale * outside


def _invertible(R: Float[Tensor, "probes probes"]) -> Float[Tensor, "probes probes"]:
    """R with its diagonal kept off zero: the sketch of a matrix of low rank has directions that are only rounding."""
    diagonal = R.diagonal()
    floor = torch.finfo(R.dtype).eps * diagonal.abs().max().clamp_min(torch.finfo(R.dtype).tiny)
    lifted = torch.where(diagonal.abs() < floor, floor.expand_as(diagonal), diagonal)
    return R - torch.diag(diagonal) + torch.diag(lifted)


def scatter_estimate(samples: Float[Tensor, " probes"], products: int) -> TraceEstimate:
    """The mean of the samples with the standard error that their scatter gives, in float64."""
    samples = samples.double()
    error = samples.std().item() / math.sqrt(len(samples))
    return TraceEstimate(samples.mean().item(), error, products)


def require_products(products: int, at_least: int, estimator: str) -> None:
    """Refuse fewer products than the estimator can work with."""
    if products < at_least:
        raise InvalidInputError(f"{estimator} got products={products}; it needs at least {at_least}.")
