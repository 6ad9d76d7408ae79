"""Trace of an operator from products with random vectors: Hutchinson, Hutch++ and XTrace, each with its error."""

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from skiplens.base.axes import Float
from skiplens.base.errors import InvalidInputError, did_you_mean
from skiplens.linalg.operator import SymmetricOperator


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


@dataclass(frozen=True)
class Moments:
    """The trace and the Frobenius norm, each with its standard error."""

    trace: TraceEstimate
    frobenius: TraceEstimate


def trace_and_frobenius(
    operator: SymmetricOperator,
    products: int,
    generator: torch.Generator,
    known: Float[Tensor, "size rank"] | None = None,
) -> Moments:
    """Trace and Frobenius norm on a sketched range, exactly, plus independent probes on the rest (Hutch++).

    With Q a basis of the range, tr A = tr QᵀAQ + tr PAP and ‖A‖² = ‖AQ‖² + ‖AP‖², P = I − QQᵀ, and one product with a
    probe of the rest serves both. The probes of the rest are independent of each other, so their scatter is an honest
    error; that of leave-one-out estimates (XTrace) is too small: 95 % intervals made of it covered the truth in 80 to
    95 % of repeats.

    Args:
        operator: The matrix A.
        products: Matrix-vector products, at least 6; a third goes to each of sketch, range and rest.
        generator: Source of the probes.
        known: Directions to put into the range first, such as eigenvectors of outlying eigenvalues, which would make
            the scatter of few probes a poor guide; one more product each.
    """
    require_products(products, at_least=6, estimator="trace_and_frobenius")
    known_count = 0 if known is None else known.shape[1]
    sketch_size = min(products // 3, operator.size - known_count)
    sketch = operator @ draw(operator, sketch_size, "rademacher", generator)
    Q = torch.linalg.qr(sketch if known is None else torch.cat([known, sketch], dim=1)).Q
    Z = operator @ Q
    rest = draw(operator, products - 2 * (products // 3), "rademacher", generator)
    rest = rest - Q @ (Q.T @ rest)
    rest = rest - Q @ (Q.T @ rest)  # once more: what rounding left would be counted twice
    image = operator @ rest
    used = sketch_size + Q.shape[1] + rest.shape[1]
    trace = scatter_estimate((rest * image).sum(0), used)
    squares = scatter_estimate(image.square().sum(0), used)
    return Moments(
        TraceEstimate((Q * Z).sum().item() + trace.value, trace.standard_error, used),
        root_estimate(TraceEstimate(Z.double().square().sum().item() + squares.value, squares.standard_error, used)),
    )


def root_estimate(square: TraceEstimate) -> TraceEstimate:
    """The square root with the error that first order gives it."""
    value = math.sqrt(square.value)
    error = square.standard_error / (2 * value) if value else 0.0
    return TraceEstimate(value, error, square.products)


def rademacher(size: int, count: int, generator: torch.Generator) -> Float[Tensor, "size probes"]:
    """Columns of independent signs: the least variance for Hutchinson's estimate among independent entries."""
    bits = torch.randint(0, 2, (size, count), generator=generator, device=generator.device)
    return (2 * bits - 1).to(torch.float64)


def gaussian(size: int, count: int, generator: torch.Generator) -> Float[Tensor, "size probes"]:
    """Columns of independent standard normal numbers."""
    return torch.randn((size, count), generator=generator, device=generator.device, dtype=torch.float64)


def sphere(size: int, count: int, generator: torch.Generator) -> Float[Tensor, "size probes"]:
    """Columns uniform on the sphere of radius √size."""
    columns = gaussian(size, count, generator)
    return columns * (math.sqrt(size) / columns.norm(dim=0, keepdim=True))


Distribution = Callable[[int, int, torch.Generator], Tensor]

DISTRIBUTIONS: dict[str, Distribution] = {"rademacher": rademacher, "gaussian": gaussian, "sphere": sphere}


def draw(
    operator: SymmetricOperator, count: int, distribution: str, generator: torch.Generator
) -> Float[Tensor, "size probes"]:
    """Probes that `operator` can multiply: its size, dtype and device; drawn in float64 on the generator's device."""
    if distribution not in DISTRIBUTIONS:
        raise InvalidInputError(
            f"There are no probes called {distribution!r}. {did_you_mean(distribution, DISTRIBUTIONS)}"
        )
    return DISTRIBUTIONS[distribution](operator.size, count, generator).to(operator.device, operator.dtype)
