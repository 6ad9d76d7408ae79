"""Figure 1(f) and theorem 5: how many critical points a mixture of path lengths has."""

import math
from fractions import Fraction

import torch
from torch import Tensor

from skiplens.base import Float, Settings, option
from skiplens.kernels.finite_width.simulation import estimate
from skiplens.papers import statistics
from skiplens.papers.littwin2016_ensembles import common
from skiplens.papers.littwin2016_ensembles.common import CLOSED_FORM, DEPTH, POSITIVE, REPLICATES, SIZES, once
from skiplens.papers.littwin2016_ensembles.fig1abc import exact_curvature_ratio
from skiplens.papers.littwin2016_ensembles.spin_glass.complexity import Mixture, network_complexity, printed_complexity
from skiplens.papers.littwin2016_ensembles.spin_glass.critical_points import critical_angles, find_critical_points
from skiplens.papers.littwin2016_ensembles.spin_glass.expected_counts import log_expected_critical_points
from skiplens.papers.littwin2016_ensembles.spin_glass.hamiltonian import SpinGlass
from skiplens.papers.statistics import Band, Readings, against, chosen, decide, exactly, over_seeds, raw_tables, stacked
from skiplens.papers.study import Item, Judgement, Preset, claim
from skiplens.paths.weights import path_moments
from skiplens.plots.figure import Bars, Figure, Line, Reference, numbers
from skiplens.sweeps.run import Run

ROUNDING = 1e-10
COUNT = 0.1  # tolerance of a mean number of critical points, relative
COUNTED_RATIOS = (0.05, 0.1, 0.5, 1.0, 2.0, 10.0)  # β at which critical points are counted
ORDERS = (3, 4, 5, 7, 10, 20, 50)  # p of theorem 5. (At p = 2 there is only one mixture.)

COUNTED: dict[Preset, tuple[int, int]] = {"smoke": (20, 2), "laptop": (200, 15), "paper": (1000, 100)}
"""Spin glasses whose critical points are counted, with two and with three spins."""

_STEPS, _STRIDE = 800, 0.5


class Curve(Settings):
    """The complexity against the depth ratio (figure 1f)."""

    depth: int = option(DEPTH, "layers")
    points: int = option(61, "depth ratios from 1/1000 to 1000, logarithmic")


class FiniteSize(Settings):
    """The exact mean number of minima of a network's spin glass with finitely many spins (figure 1f)."""

    depth: int = option(DEPTH, "layers")
    depth_ratio: float = option(0.005, "β")
    shortest: int = option(1, "shortest paths: 1 keeps the linear term, 2 drops it")
    spins: tuple[int, ...] = option((5, 10, 20, 40), "numbers of spins")


class Counts(statistics.ReplicateSettings):
    """Critical points found in sampled spin glasses (figure 1f, theorem 5)."""

    depth: int = option(10, "layers, the highest order of interactions")
    depth_ratio: float = option(1.0, "β")
    pure: bool = option(False, "only interactions of the highest order: a network without shortcuts")
    spins: int = option(2, "spins")
    samples: int = option(200, "spin glasses")


class Mixtures(statistics.ReplicateSettings):
    """Complexities of random mixtures, and mixtures that climb to the highest one (theorem 5)."""

    order: int = option(10, "highest order, p")
    draws: int = option(1000, "random mixtures")
    starts: int = option(10, "mixtures that climb")


def fig1f_runs(preset: Preset, seed: int) -> list[Run]:
    """The curve, exact counts for few spins, and counts in sampled spin glasses with two."""
    base = Counts(samples=COUNTED[preset][0])
    return [
        once(curve, Curve()),
        once(finite_size, FiniteSize()),
        *statistics.replicated(counts, base, SIZES[preset].replicates, seed, depth_ratio=COUNTED_RATIOS),
    ]


def thm5_runs(preset: Preset, seed: int) -> list[Run]:
    """Mixtures that climb, the network's curve, and counts of critical points with and without shortcuts."""
    sizes, base = SIZES[preset], Counts(depth=4, spins=3, samples=COUNTED[preset][1])
    return [
        *statistics.replicated(climbs, Mixtures(), sizes.trainings, seed, order=ORDERS),
        once(curve, Curve()),
        *statistics.replicated(counts, base, sizes.replicates, seed, cost=10, pure=(False, True)),
    ]


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
    if settings.pure:
        mixture = Mixture.pure(settings.depth)
    else:
        mixture = Mixture.of_network(settings.depth, settings.depth_ratio, shortest=2)
    glasses = (SpinGlass.sample(mixture, settings.spins, generator) for _ in range(settings.samples))
    found = [_minima_and_total(glass, generator) for glass in glasses]
    good = [numbers for numbers in found if numbers is not None]
    minima, total = torch.tensor(good, dtype=torch.float64).mean(0)
    expected = log_expected_critical_points(settings.spins, mixture.curvature_ratio).exp()
    return {
        "minima": minima,
        "total": total,
        "expected_minima": expected[0],
        "expected_total": expected.sum(),
        "inconsistent": torch.tensor(len(found) - len(good)),
    }


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
        leaf = squares.detach().requires_grad_()
        (slope,) = torch.autograd.grad(equation_46(leaf).sum(), leaf)
        steepness = slope.amax(1, keepdim=True) - slope.amin(1, keepdim=True)
        squares = torch.softmax(squares.detach().log() + _STRIDE * slope / steepness, 1)
    return {
        "random": random.max(),
        "climbed": equation_46(squares).max(),
        "lowest_climbed": equation_46(squares).min(),
        "share_of_highest_order": squares[:, -1].min(),
    }


def _dirichlet(count: int, order: int, generator: torch.Generator) -> Float[Tensor, "mixtures orders"]:
    drawn = torch.empty(count, order - 1, dtype=torch.float64).exponential_(generator=generator)
    return drawn / drawn.sum(1, keepdim=True)


def equation_46(squares: Float[Tensor, "mixtures orders"]) -> Float[Tensor, " mixtures"]:
    """θ of mixtures ε² over the orders 2..p, as printed."""
    r = torch.arange(2, squares.shape[1] + 2, dtype=squares.dtype)
    logarithm = 0.5 * torch.log((squares @ (r * (r - 1))) / (squares @ r))
    return logarithm - (squares @ (r * (r - 2))) / (squares @ r.square())


def equation_31(curvature_ratio: float | int) -> float:
    """½ log(v″/v′) − (v″ − v′)/(v″ + v′), as printed."""
    return 0.5 * math.log(curvature_ratio) - (curvature_ratio - 1) / (curvature_ratio + 1)


@claim("Figure 1f", "> 0")
def _increase(readings: Readings) -> Judgement:
    """The number of critical points of finite index grows with β."""
    (found,) = chosen(readings, "curve")
    rises = found["complexity"].diff()
    off = (found["complexity"] - found["summed_complexity"]).abs().max()
    sentence = (
        f"Smallest rise of θ from one β to the next, {len(rises) + 1} values from 1e-3 to 1e3, p = {DEPTH}, without "
        f"the linear term. θ is off by at most {float(off):.1e} from equation 31 with moments summed in whole numbers."
    )
    return decide(exactly(rises), POSITIVE, sentence)


@claim("Eq. 31", "equal")
def _curve(readings: Readings) -> Judgement:
    """θ = ½ log(v″/v′) - (v″-v′)/(v″+v′)."""
    (found,) = chosen(readings, "curve")
    off = (found["complexity"] - found["summed_complexity"]).abs().max()
    sentence = "Largest deviation of the curve from equation 31 with moments added up in whole numbers."
    return decide(exactly(off), Band.around(0.0, ROUNDING), sentence)


@claim("Eq. 31, Eq. 15", "θ of Eq. 31")
def _linear_term(readings: Readings) -> Judgement:
    """The same with the network's paths of length 1."""
    (found,) = chosen(readings, "finite_size")
    exact, printed = found["log_minima"][-1], float(found["printed"][-1])
    return statistics.decide_correction(
        (exactly(exact), Band.around(printed, 0.01)),
        (exactly(exact), Band.around(0.0, 0.01)),
        f"(1/Λ) log of the exact mean number of minima, Λ = {int(found['spins'][-1])}, β = "
        f"{found.setting('depth_ratio')}, with the linear term that the network has. Equation 31 gives {printed:.3f}, "
        "but every smooth function on a sphere has a minimum: θ_0 = 0 where v″ < v′.",
    )


@claim("Section 5", "equal")
def _counts(readings: Readings) -> Judgement:
    """Spin glasses have the mean number of critical points that the theory says."""
    _, found, expected = _by_ratio(readings)
    sentence = (
        "Largest relative deviation over β of the mean number of minima found in sampled spin glasses (p = 10, two "
        "spins) from the exact mean (Kac-Rice)."
    )
    return decide(over_seeds(found / expected - 1), Band.around(0.0, COUNT), sentence)


@claim("Figure 1f", "> 0")
def _counted_increase(readings: Readings) -> Judgement:
    """Sampled spin glasses have more minima for larger β."""
    ratios, found, _ = _by_ratio(readings)
    sentence = f"Smallest rise of the mean number of minima found, from β = {ratios[2]:g} on; p = 10, two spins."
    return decide(over_seeds(found[:, 2:].diff(dim=1)), POSITIVE, sentence)


@claim("Theorem 5, Eq. 33", "ε_p² = 1")
def _maximiser(readings: Readings) -> Judgement:
    """θ is largest for ε_p = 1, all others 0."""
    _, shares = against(readings, "share_of_highest_order", "order", climbs)
    sentence = "Smallest ε_p² at which mixtures end that climb θ from random starts, p = 3 to 50."
    return decide(over_seeds(shares), Band.around(1.0, 1e-6), sentence)


@claim("Theorem 5", "always")
def _bound(readings: Readings) -> Judgement:
    """Every other mixture has a smaller θ."""
    orders, best = against(readings, "random", "order", climbs)
    gaps = best - torch.tensor([equation_31(order - 1) for order in orders], dtype=torch.float64)
    draws = chosen(readings, "climbs")[0].setting("draws")
    sentence = (
        f"Share of the orders (p = 3 to 50) at which the best of {draws} random mixtures has a smaller θ than the pure "
        f"model; the closest is {float(-gaps.max()):.2g} below."
    )
    return common.judge_always((gaps < 0).double().mean(1), sentence)


@claim("Proof of Theorem 5, Eq. 48", "½ log(p-1) - (1 - 2/p)")
def _equation_48(readings: Readings) -> Judgement:
    """The bound of the chain of inequalities is θ of the pure model."""
    best = stacked(readings, "climbed", "climbs", order=10)
    chain, pure = 0.5 * math.log(9), equation_31(9)
    return statistics.decide_correction(
        (exactly(chain), Band.around(pure, ROUNDING)),
        (over_seeds(best), Band.around(pure, ROUNDING)),
        "Highest θ reached by climbing mixtures, p = 10. The minimum in equation 48 is 0, at r = 2, not at r = p: the "
        f"chain only bounds θ by ½ log(p-1) = {chain:.4f}. The theorem holds all the same: θ grows with v″/v′ ≤ p-1.",
    )


@claim("Section 5, after Theorem 5", "> 0")
def _network(readings: Readings) -> Judgement:
    """A ResNet has fewer critical points than a conventional network of its depth."""
    (found,) = chosen(readings, "curve")
    gap = equation_31(DEPTH - 1) - found["complexity"]
    sentence = f"Smallest distance of θ(β) below the conventional network's {equation_31(DEPTH - 1):.4f}, p = {DEPTH}."
    return decide(exactly(gap), POSITIVE, sentence)


@claim("Section 5, after Theorem 5", "> 0")
def _counted(readings: Readings) -> Judgement:
    """Sampled spin glasses of a ResNet have fewer minima than those of a conventional network."""
    (mixed, pure), (exact_mixed, exact_pure) = (
        [stacked(readings, name, "counts", spins=3, pure=pure) for pure in (False, True)]
        for name in ("minima", "expected_minima")
    )
    sentence = (
        "Minima of the conventional network's spin glasses minus those of the ResNet's (β = 1), means of what was "
        f"found; p = 4, three spins. Exact: {float(exact_pure[0]):.3f} and {float(exact_mixed[0]):.3f}."
    )
    return decide(over_seeds(pure - mixed), POSITIVE, sentence)


def _by_ratio(readings: Readings) -> tuple[list[float], Float[Tensor, "replicates ratios"], Float[Tensor, " ratios"]]:
    """The depth ratios, the minima counted with two spins, and their exact means."""
    ratios, found = against(readings, "minima", "depth_ratio", counts, spins=2)
    return ratios, found, against(readings, "expected_minima", "depth_ratio", counts, spins=2)[1][0]


FIG1F = (_increase, _curve, _linear_term, _counts, _counted_increase)
THM5 = (_maximiser, _bound, _equation_48, _network, _counted)


def draw_fig1f(readings: Readings) -> tuple[Figure, ...]:
    """The curve, and minima counted in sampled spin glasses."""
    (found,) = chosen(readings, "curve")
    ratios, printed = numbers(found["depth_ratio"]), found["printed_with_linear"]
    # where equation 31 is wrong, down to where it would leave the figure
    wrong = printed.masked_fill((printed >= 0) | (printed < -0.3), float("nan"))
    words = ("complexity", f"Figure 1f: complexity of critical points of finite index, p = {DEPTH}")
    caption = (
        "θ grows with β towards that of a conventional network (grey). Without paths of length 1, as in the "
        "paper's section 5; with them θ is 0 below β ≈ 1/p, where equation 31 would be negative."
    )
    marks = (
        Line(ratios, numbers(found["complexity"]), "without paths of length 1"),
        Line(ratios, numbers(found["complexity_with_linear"]), "with them", dashed=True),
        Line(ratios, numbers(wrong), "with them, Eq. 31 as printed"),
        Reference(equation_31(DEPTH - 1), "conventional network"),
    )
    theory = statistics.figure(words, caption, ("β", "θ = lim (1/Λ) log E Crt"), marks, log="x")
    places, minima, expected = _by_ratio(readings)
    counted = statistics.figure(
        ("counted", "Minima counted in sampled spin glasses, p = 10, two spins"),
        "Means over replicates with standard errors; the line is exact (Kac-Rice).",
        ("β", "number of minima"),
        (Line(numbers(places), numbers(expected), "exact mean"), statistics.mean_points(places, minima, "counted")),
        log="x",
    )
    return theory, counted


def draw_thm5(readings: Readings) -> tuple[Figure, ...]:
    """Random and climbing mixtures against the pure model, and counts with and without shortcuts."""
    orders, climbed = against(readings, "climbed", "order", climbs)
    words = ("mixtures", "Theorem 5: which mixtures maximise the complexity")
    caption = "Mixtures that climb end at the pure model, and the best of 1000 random ones stay below it."
    marks = (
        Line(numbers(orders), numbers([equation_31(order - 1) for order in orders]), "pure model"),
        statistics.mean_points(orders, climbed, "climbed"),
        statistics.mean_points(orders, against(readings, "random", "order", climbs)[1], "best of random mixtures"),
    )
    mixtures = statistics.figure(words, caption, ("highest order p", "θ"), marks)
    kinds = {"ResNet, β = 1": False, "conventional": True}
    found = [estimate(stacked(readings, "minima", "counts", spins=3, pure=pure)) for pure in kinds.values()]
    errors = numbers([one.standard_error for one in found])
    exact = [float(stacked(readings, "expected_minima", "counts", spins=3, pure=pure)[0]) for pure in kinds.values()]
    counted = statistics.figure(
        ("counted", "Minima counted in sampled spin glasses, p = 4, three spins"),
        "Means over replicates with standard errors, and the exact means.",
        ("network", "number of minima"),
        (
            Bars(tuple(kinds), numbers([one.value for one in found]), "counted", errors),
            Bars(tuple(kinds), numbers(exact), "exact mean"),
        ),
    )
    return mixtures, counted


LINEAR_TERM = (
    "Paths of length 1 are left out and ε is normalised again, as in the paper's section 5; the network has them, and "
    "the other curve shows what they change."
)

FEW_SPINS = "The paper counts in the limit of many spins; here counts are for two or three, against the exact mean."
_FIG1F, _THM5 = (LINEAR_TERM, FEW_SPINS, CLOSED_FORM), (FEW_SPINS, REPLICATES)

ITEMS = (
    Item("fig1f", "complexity against β", fig1f_runs, FIG1F, draw_fig1f, raw_tables, _FIG1F),
    Item("thm5", "which mixtures maximise the complexity", thm5_runs, THM5, draw_thm5, raw_tables, _THM5),
)
