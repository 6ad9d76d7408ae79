"""Complexity of mixtures: curves over the depth ratio, counts in sampled spin glasses, and the climb to the top."""

import math
from fractions import Fraction

import torch

from skiplens.core.axes import Float, Tensor
from skiplens.studies.littwin2016_ensembles.exact import exact_curvature_ratio
from skiplens.studies.littwin2016_ensembles.settings import Counts, Curve, FiniteSize, Mixtures
from skiplens.theory.path_weights import path_moments
from skiplens.theory.spin_glass import (
    Mixture,
    SpinGlass,
    expected_critical_points,
    find_critical_points,
    log_expected_critical_points,
    network_complexity,
    printed_complexity,
)
from skiplens.theory.spin_glass.circle import critical_angles

_STEPS, _STRIDE = 800, 0.5


def curve(settings: Curve) -> dict[str, Tensor]:
    """θ at each depth ratio: without the linear term, with it (right and as printed), and with whole numbers summed."""
    ratios = torch.logspace(-3, 3, settings.points, dtype=torch.float64)
    exact = [exact_curvature_ratio(settings.depth, Fraction(beta), 2) for beta in ratios.tolist()]
    with_linear = path_moments(settings.depth, ratios).curvature_ratio
    return {
        "depth_ratio": ratios,
        "complexity": network_complexity(settings.depth, ratios),
        "summed_complexity": torch.tensor([equation_31(B) for B in exact], dtype=torch.float64),
        "complexity_with_linear": network_complexity(settings.depth, ratios, shortest=1),
        "printed_with_linear": printed_complexity(with_linear),
    }


def equation_31(curvature_ratio: float) -> float:
    """½ log(v″/v′) − (v″ − v′)/(v″ + v′), as printed."""
    return 0.5 * math.log(curvature_ratio) - (curvature_ratio - 1) / (curvature_ratio + 1)


def finite_size(settings: FiniteSize) -> dict[str, Tensor]:
    """(1/Λ) log of the exact mean number of minima for each number of spins, and equation 31."""
    B = float(path_moments(settings.depth, settings.depth_ratio, settings.shortest).curvature_ratio)
    logs = [float(log_expected_critical_points(spins, B)[0]) / spins for spins in settings.spins]
    printed = torch.full((len(logs),), equation_31(B), dtype=torch.float64)
    return {
        "spins": torch.tensor(settings.spins),
        "log_minima": torch.tensor(logs, dtype=torch.float64),
        "printed": printed,
    }


def counts(settings: Counts) -> dict[str, Tensor]:
    """Mean numbers of minima and of all critical points found, their exact expectations, and searches that missed some.

    A sample whose Euler sum is wrong is left out and counted.
    """
    generator = settings.stream()
    mixture = _mixture(settings)
    glasses = (SpinGlass.sample(mixture, settings.spins, generator) for _ in range(settings.samples))
    found = [_minima_and_total(glass, generator) for glass in glasses]
    good = [numbers for numbers in found if numbers is not None]
    minima, total = torch.tensor(good, dtype=torch.float64).mean(0)
    expected = expected_critical_points(settings.spins, mixture.curvature_ratio)
    return {
        "minima": minima,
        "total": total,
        "expected_minima": expected[0],
        "expected_total": expected.sum(),
        "inconsistent": torch.tensor(len(found) - len(good)),
    }


def _mixture(settings: Counts) -> Mixture:
    if settings.pure:
        return Mixture.pure(settings.depth)
    return Mixture.of_network(settings.depth, settings.depth_ratio, shortest=2)


def _minima_and_total(glass: SpinGlass, generator: torch.Generator) -> tuple[int, int] | None:
    """None if the search missed some. On a circle every other critical point is a minimum."""
    if glass.dimension == 2:
        total = len(critical_angles(glass))
        return (total // 2, total) if total and total % 2 == 0 else None
    points = find_critical_points(glass, generator)
    by_index = points.count_by_index()
    return (int(by_index[0]), int(by_index.sum())) if points.is_consistent else None


def climbs(settings: Mixtures) -> dict[str, Tensor]:
    """The largest complexity of random mixtures, and where climbing ones end: complexity and share of order p.

    Mixtures of orders 2..p are drawn uniformly (Dirichlet); climbing is multiplicative ascent on ε² with steps of one
    length, since the slope vanishes at the pure model of order 2. Complexities are equation 46, added up as printed.
    """
    generator = settings.stream()
    random = equation_46(_dirichlet(settings.draws, settings.order, generator))
    squares = _dirichlet(settings.starts, settings.order, generator)
    for _ in range(_STEPS):
        squares = _climbed(squares)
    return {
        "random": random.max(),
        "climbed": equation_46(squares).max(),
        "lowest_climbed": equation_46(squares).min(),
        "share_of_highest_order": squares[:, -1].min(),
    }


def equation_46(squares: Float[Tensor, "mixtures orders"]) -> Float[Tensor, " mixtures"]:
    """θ of mixtures ε² over the orders 2..p, as printed."""
    r = torch.arange(2, squares.shape[1] + 2, dtype=squares.dtype)
    logarithm = 0.5 * torch.log((squares @ (r * (r - 1))) / (squares @ r))
    return logarithm - (squares @ (r * (r - 2))) / (squares @ r.square())


def _climbed(squares: Tensor) -> Tensor:
    leaf = squares.detach().requires_grad_()
    (slope,) = torch.autograd.grad(equation_46(leaf).sum(), leaf)
    steepness = slope.amax(1, keepdim=True) - slope.amin(1, keepdim=True)
    return torch.softmax(squares.log() + _STRIDE * slope / steepness, 1)


def _dirichlet(count: int, order: int, generator: torch.Generator) -> Float[Tensor, "mixtures orders"]:
    drawn = torch.empty(count, order - 1, dtype=torch.float64).exponential_(generator=generator)
    return drawn / drawn.sum(1, keepdim=True)
