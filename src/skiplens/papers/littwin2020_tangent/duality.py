"""Figure 4 and theorems 3 and 4: single matrices and reduced networks."""

import math
from collections.abc import Sequence
from functools import partial

import torch
from torch import Tensor

from skiplens.kernels.finite_width.networks import ResNet, weight_law
from skiplens.kernels.finite_width.reduced_moments import reduced_moments
from skiplens.kernels.finite_width.simulation import Estimate, estimate
from skiplens.papers.littwin2020_tangent.kernels import NAMES
from skiplens.papers.statistics import Band, Interval, decide, decide_correction, over_seeds, slope, stacked, values
from skiplens.papers.study import Claim, Judgement
from skiplens.plots.figure import Bars, Figure, Line, Points, Reference, numbers
from skiplens.readings.reading import Measurement

SECOND, FOURTH = 0.1, 0.3
"""Relative tolerances of second and of fourth moments, whose tails are heavy."""

LOWEST_RATIO = 1 / 3
"""Of E‖J‖⁴ to E f⁴, for any weights with c₄ ≤ 3; Gaussian ones lie exactly on it."""

RATIO = FOURTH * LOWEST_RATIO
"""Tolerance on the bounds of that ratio: a fourth moment's, relative to the lowest."""


def judge_layer_second(readings: Sequence[Measurement]) -> Judgement:
    """Mean squared output over mean squared Jacobian norm at each depth."""
    ratios = _by_depth(readings, "output_squared", 1) / _by_depth(readings, "jacobian_squared", 1)
    sentence = "Mean squared output of the reduced network over mean squared Jacobian norm, minus 1; worst depth."
    return decide(over_seeds(ratios - 1), Band.around(0.0, 2 * SECOND), sentence)


def judge_layer_fourth(readings: Sequence[Measurement]) -> Judgement:
    """Fourth moment of the Jacobian norm over that of the output at each depth."""
    ratios = _by_depth(readings, "jacobian_squared", 2) / _by_depth(readings, "output_squared", 2)
    sentence = (
        "Fourth moment of the Jacobian norm over that of the output, worst depth; for Gaussian weights it is 1/3."
    )
    return decide(over_seeds(ratios), Band.between(LOWEST_RATIO, 1.0, RATIO), sentence)


def judge_layer_growth(readings: Sequence[Measurement]) -> Judgement:
    """Growth of the second moment with depth."""
    depths = values(readings, "depth", "layer")
    rate = slope(depths, _by_depth(readings, "jacobian_squared", 1).log())
    expected = math.log1p(0.3**2)
    sentence = f"Growth of the log second moment per block; α^m (1 + α^m)^(L-1) gives log 1.09 = {expected:.4f}."
    return decide(over_seeds(rate), Band.around(expected, 0.1 * expected), sentence)


def judge_paths(readings: Sequence[Measurement], architecture: str, order: str) -> Judgement:
    """Moments of the path part against those of the reduced network, matrix by matrix."""
    reduced, path = (_moment(readings, f"{name}_{order}", architecture) for name in ("reduced", "path"))
    tolerance = SECOND if order == "second" else FOURTH
    sentence = f"{order.capitalize()} moment of the paths through a matrix over that of the reduced network, minus 1."
    return decide(_relative(path, reduced), Band.around(0.0, tolerance), sentence)


def judge_jacobian(readings: Sequence[Measurement], architecture: str) -> Judgement:
    """Mean squared Jacobian norm against the second moment of the reduced network."""
    reduced, norm = (_moment(readings, f"{name}_second", architecture) for name in ("reduced", "jacobian"))
    sentence = "Mean squared Jacobian norm of a matrix over the second moment of the reduced network, minus 1."
    return decide(_relative(norm, reduced), Band.around(0.0, SECOND), sentence)


def judge_gaussian_bounds(readings: Sequence[Measurement], architecture: str) -> Judgement:
    """The printed bounds for Gaussian weights."""
    found = _fourth_ratio(readings, architecture, "gaussian")
    sentence = "E‖J‖⁴ / E f⁴ of a matrix, Gaussian weights: exactly 1/3, the printed lower bound."
    return decide(found, Band.between(LOWEST_RATIO, 1.0, RATIO), sentence)


def judge_other_bounds(readings: Sequence[Measurement], law: str) -> Judgement:
    """The printed lower bound for weights with c₄ < 3."""
    c4 = weight_law(law).fourth_moment
    found = _fourth_ratio(readings, "resnet", law)
    sentence = (
        f"E‖J‖⁴ / E f⁴ of a matrix, {law} weights (c₄ = {c4:g}). Printed: at least 1/c₄ = {1 / c4:.3f}. "
        f"Right: between 1/max(3, c₄) = 0.333 and 1/min(3, c₄) = {1 / min(3, c4):.3f}."
    )
    return decide_correction(
        (found, Band(1 / c4, math.inf)), (found, Band.between(LOWEST_RATIO, 1 / c4, RATIO)), sentence
    )


def _by_depth(readings: Sequence[Measurement], name: str, power: int) -> Tensor:
    """Moments (replicates, depths) of figure 4."""
    depths = values(readings, "depth", "layer")
    return torch.stack([stacked(readings, name, "layer", depth=depth).pow(power).mean(1) for depth in depths], dim=1)


def _moment(readings: Sequence[Measurement], name: str, architecture: str, law: str = "gaussian") -> Tensor:
    return stacked(readings, name, "duality", architecture=architecture, law=law)


def _relative(found: Tensor, expected: Tensor) -> Interval:
    """Relative differences over the mean of what is expected, so that no ratio of noisy numbers biases them."""
    return over_seeds((found - expected) / expected.mean(0))


def _fourth_ratio(readings: Sequence[Measurement], architecture: str, law: str) -> Interval:
    jacobian, reduced = (_moment(readings, f"{name}_fourth", architecture, law) for name in ("jacobian", "reduced"))
    return over_seeds(jacobian / reduced)


FIG4 = (
    Claim(
        "second", "Second moments of ‖J^k‖ and of ‖f_(k)‖ closely match.", "Figure 4a", "ratio 1", judge_layer_second
    ),
    Claim(
        "fourth", "E‖J^k‖⁴ lies between the bounds from E f_(k)⁴.", "Figure 4b", "between 1/3 and 1", judge_layer_fourth
    ),
    Claim(
        "growth",
        "Moments grow exponentially with depth (straight lines in log scale).",
        "Figure 4a",
        "log(1 + α^m) a block",
        judge_layer_growth,
    ),
)

THM3 = tuple(
    Claim(
        f"{architecture}_{order}",
        f"E f_(k)^{power} = E (f^k)^{power} for every matrix ({title}).",
        "Theorem 3, Eq. 38",
        "ratio 1",
        partial(judge_paths, architecture=architecture, order=order),
    )
    for architecture, title in (("resnet", "ResNet"), ("densenet", "DenseNet"))
    for order, power in (("second", 2), ("fourth", 4))
)

THM4 = (
    Claim(
        "resnet_second",
        "E‖J^k‖² = E f_(k)² for every matrix (ResNet).",
        "Theorem 4.1",
        "ratio 1",
        partial(judge_jacobian, architecture="resnet"),
    ),
    Claim(
        "densenet_second",
        "E‖J^k‖² = E f_(k)² for every matrix (DenseNet).",
        "Theorem 4.1",
        "ratio 1",
        partial(judge_jacobian, architecture="densenet"),
    ),
    Claim(
        "resnet_gaussian",
        "E f⁴/c₄ ≤ E‖J^k‖⁴ ≤ E f⁴, Gaussian weights (ResNet).",
        "Theorem 4.2",
        "between 1/3 and 1",
        partial(judge_gaussian_bounds, architecture="resnet"),
    ),
    Claim(
        "densenet_gaussian",
        "E f⁴/c₄ ≤ E‖J^k‖⁴ ≤ E f⁴, Gaussian weights (DenseNet).",
        "Theorem 4.2",
        "between 1/3 and 1",
        partial(judge_gaussian_bounds, architecture="densenet"),
    ),
    Claim(
        "uniform",
        "E f⁴/c₄ ≤ E‖J^k‖⁴, uniform weights.",
        "Theorem 4.2",
        "at least 0.556",
        partial(judge_other_bounds, law="uniform"),
    ),
    Claim(
        "rademacher",
        "E f⁴/c₄ ≤ E‖J^k‖⁴, Rademacher weights.",
        "Theorem 4.2",
        "at least 1",
        partial(judge_other_bounds, law="rademacher"),
    ),
)


def draw_fig4(readings: Sequence[Measurement]) -> tuple[Figure, ...]:
    """Panels (a) second and (b) fourth moments against depth."""
    return _second(readings), _fourth(readings)


def draw_thm3(readings: Sequence[Measurement]) -> tuple[Figure, ...]:
    """Moments of the path part over those of the reduced network."""
    return tuple(_path_ratios(readings, architecture) for architecture in ("resnet", "densenet"))


def draw_thm4(readings: Sequence[Measurement]) -> tuple[Figure, ...]:
    """Fourth moments of Jacobians over those of reduced networks, for three laws."""
    laws = ("gaussian", "uniform", "rademacher")
    ratios = [_draw_fourth_ratio(readings, law) for law in laws]
    lower = [1 / weight_law(law).fourth_moment for law in laws]
    return (
        Figure(
            name="fourth_moments",
            title="Theorem 4: fourth moments, Jacobian over output",
            caption="The paper prints 1/c₄ as the lower bound (orange). Uniform and Rademacher weights fall below it; "
            "the right bounds are 1/max(3, c₄) (dotted, 1/3) and 1/min(3, c₄).",
            x_label="law of the weights",
            y_label="E‖J‖⁴ / E f⁴",
            marks=(
                Bars(laws, numbers([r.value for r in ratios]), "measured", numbers([r.standard_error for r in ratios])),
                Bars(laws, numbers(lower), "lower bound as printed"),
                Reference(1 / 3, "1/3"),
            ),
        ),
    )


def _second(readings: Sequence[Measurement]) -> Figure:
    depths = values(readings, "depth", "layer")
    exact = [float(reduced_moments(_network(depth)).second) for depth in depths]
    return Figure(
        name="second_moments",
        title="Figure 4a: second moments, ResNet, m = 2, α = 0.3",
        caption="Both second moments lie on one line, which is exact, and grow exponentially with depth.",
        x_label="depth L",
        y_label="second moment",
        marks=(
            _points(readings, "jacobian_squared", 1, "‖J^k‖"),
            _points(readings, "output_squared", 1, "‖f_(k)‖"),
            Line(numbers(depths), numbers(exact), "exact"),
        ),
        y_log=True,
    )


def _fourth(readings: Sequence[Measurement]) -> Figure:
    depths = values(readings, "depth", "layer")
    exact = torch.tensor([float(reduced_moments(_network(depth)).fourth) for depth in depths])
    return Figure(
        name="fourth_moments",
        title="Figure 4b: fourth moments, ResNet, m = 2, α = 0.3",
        caption="The fourth moment of the Jacobian norm lies below that of the output by a factor 3: on the lower "
        "bound of Theorem 4, for Gaussian weights.",
        x_label="depth L",
        y_label="fourth moment",
        marks=(
            _points(readings, "jacobian_squared", 2, "‖J^k‖"),
            _points(readings, "output_squared", 2, "‖f_(k)‖: upper bound"),
            Line(numbers(depths), numbers(exact), "exact, ‖f_(k)‖"),
            Line(numbers(depths), numbers(exact / 3), "a third of it: lower bound", dashed=True),
        ),
        y_log=True,
    )


def _points(readings: Sequence[Measurement], name: str, power: int, label: str) -> Points:
    depths = values(readings, "depth", "layer")
    columns = [stacked(readings, name, "layer", depth=depth).pow(power).mean(1) for depth in depths]
    found = estimate(torch.stack(columns, dim=1))
    return Points(numbers(depths), numbers(found.value), label, numbers(found.standard_error))


def _network(depth: int) -> ResNet:
    return ResNet(depth, 50, 2, 0.3)


def _path_ratios(readings: Sequence[Measurement], architecture: str) -> Figure:
    marks = []
    for order in ("second", "fourth"):
        path, reduced = (
            stacked(readings, f"{part}_{order}", "duality", architecture=architecture, law="gaussian")
            for part in ("path", "reduced")
        )
        found = estimate(path / reduced.mean(0))
        places = numbers(range(1, path.shape[1] + 1))
        marks.append(Points(places, numbers(found.value), f"{order} moment", numbers(found.standard_error)))
    return Figure(
        name=f"duality_{architecture}",
        title=f"Theorem 3: paths through a matrix, reduced {NAMES[architecture]}",
        caption="Both moments agree for every matrix, although the two networks have different activations.",
        x_label="matrix, from input to output",
        y_label="moment of f^k over that of f_(k)",
        marks=(*marks, Reference(1.0)),
    )


def _draw_fourth_ratio(readings: Sequence[Measurement], law: str) -> Estimate:
    jacobian, reduced = (
        stacked(readings, f"{part}_fourth", "duality", architecture="resnet", law=law)
        for part in ("jacobian", "reduced")
    )
    return estimate((jacobian / reduced).mean(1))
