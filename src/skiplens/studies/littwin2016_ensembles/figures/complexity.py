"""Figure 1(f) and theorem 5."""

from collections.abc import Sequence

import torch
from torch import Tensor

from skiplens.figures import Bars, Figure, Line, Points, Reference
from skiplens.figures.figure import numbers
from skiplens.readings import Measurement
from skiplens.studies.littwin2016_ensembles.measure.mixtures import equation_31
from skiplens.studies.littwin2016_ensembles.settings import DEPTH
from skiplens.studies.selection import chosen, stacked, values
from skiplens.theory.finite_width import estimate


def fig1f(readings: Sequence[Measurement]) -> tuple[Figure, ...]:
    """The curve, and minima counted in sampled spin glasses."""
    (found,) = chosen(readings, "curve")
    ratios = numbers(found["depth_ratio"])
    curve = Figure(
        name="complexity",
        title=f"Figure 1f: complexity of critical points of finite index, p = {DEPTH}",
        caption="θ grows with β towards that of a conventional network (grey). Without paths of length 1, as in the "
        "paper's section 5; with them θ is 0 below β ≈ 1/p, where equation 31 would be negative.",
        x_label="β",
        y_label="θ = lim (1/Λ) log E Crt",
        marks=(
            Line(ratios, numbers(found["complexity"]), "without paths of length 1"),
            Line(ratios, numbers(found["complexity_with_linear"]), "with them", dashed=True),
            Line(ratios, numbers(_shown(found["printed_with_linear"])), "with them, Eq. 31 as printed"),
            Reference(equation_31(DEPTH - 1), "conventional network"),
        ),
        x_log=True,
    )
    return curve, _counted(readings)


def _shown(printed: Tensor) -> Tensor:
    """Where equation 31 is wrong, down to where it would leave the figure."""
    return printed.masked_fill((printed >= 0) | (printed < -0.3), float("nan"))


def _counted(readings: Sequence[Measurement]) -> Figure:
    ratios = values(readings, "depth_ratio", "counts", spins=2)
    columns = [stacked(readings, "minima", "counts", spins=2, depth_ratio=ratio) for ratio in ratios]
    exact = [float(stacked(readings, "expected_minima", "counts", spins=2, depth_ratio=ratio)[0]) for ratio in ratios]
    found = estimate(torch.stack(columns, dim=1))
    return Figure(
        name="counted",
        title="Minima counted in sampled spin glasses, p = 10, two spins",
        caption="Means over replicates with standard errors; the line is exact (Kac-Rice).",
        x_label="β",
        y_label="number of minima",
        marks=(
            Line(numbers(ratios), numbers(exact), "exact mean"),
            Points(numbers(ratios), numbers(found.value), "counted", numbers(found.standard_error)),
        ),
        x_log=True,
    )


def thm5(readings: Sequence[Measurement]) -> tuple[Figure, ...]:
    """Random and climbing mixtures against the pure model, and counts with and without shortcuts."""
    orders = values(readings, "order", "climbs")
    random, climbed = (
        estimate(torch.stack([stacked(readings, name, "climbs", order=order) for order in orders], dim=1))
        for name in ("random", "climbed")
    )
    places = numbers(orders)
    mixtures = Figure(
        name="mixtures",
        title="Theorem 5: which mixtures maximise the complexity",
        caption="Mixtures that climb end at the pure model, and the best of 1000 random ones stay below it.",
        x_label="highest order p",
        y_label="θ",
        marks=(
            Line(places, numbers([equation_31(order - 1) for order in orders]), "pure model"),
            Points(places, numbers(climbed.value), "climbed", numbers(climbed.standard_error)),
            Points(places, numbers(random.value), "best of random mixtures", numbers(random.standard_error)),
        ),
    )
    return mixtures, _with_and_without(readings)


def _with_and_without(readings: Sequence[Measurement]) -> Figure:
    kinds = {"ResNet, β = 1": False, "conventional": True}
    found = [estimate(stacked(readings, "minima", "counts", spins=3, pure=pure)) for pure in kinds.values()]
    exact = [float(stacked(readings, "expected_minima", "counts", spins=3, pure=pure)[0]) for pure in kinds.values()]
    return Figure(
        name="counted",
        title="Minima counted in sampled spin glasses, p = 4, three spins",
        caption="Means over replicates with standard errors, and the exact means.",
        x_label="network",
        y_label="number of minima",
        marks=(
            Bars(
                tuple(kinds), numbers([f.value for f in found]), "counted", numbers([f.standard_error for f in found])
            ),
            Bars(tuple(kinds), numbers(exact), "exact mean"),
        ),
    )
