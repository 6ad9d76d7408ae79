"""Figure 4 and theorems 3 and 4: moments of single matrices and of reduced networks."""

from collections.abc import Sequence

import torch

from skiplens.figures import Bars, Figure, Line, Points, Reference
from skiplens.figures.figure import numbers
from skiplens.readings import Measurement
from skiplens.studies.littwin2020_tangent.figures.kernels import NAMES
from skiplens.studies.selection import stacked, values
from skiplens.theory.finite_width import Estimate, ResNet, estimate, reduced_moments
from skiplens.theory.finite_width.weight_laws import weight_law


def fig4(readings: Sequence[Measurement]) -> tuple[Figure, ...]:
    """Panels (a) second and (b) fourth moments against depth."""
    return _second(readings), _fourth(readings)


def thm3(readings: Sequence[Measurement]) -> tuple[Figure, ...]:
    """Moments of the path part over those of the reduced network."""
    return tuple(_path_ratios(readings, architecture) for architecture in ("resnet", "densenet"))


def thm4(readings: Sequence[Measurement]) -> tuple[Figure, ...]:
    """Fourth moments of Jacobians over those of reduced networks, for three laws."""
    laws = ("gaussian", "uniform", "rademacher")
    ratios = [_fourth_ratio(readings, law) for law in laws]
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


def _fourth_ratio(readings: Sequence[Measurement], law: str) -> Estimate:
    jacobian, reduced = (
        stacked(readings, f"{part}_fourth", "duality", architecture="resnet", law=law)
        for part in ("jacobian", "reduced")
    )
    return estimate((jacobian / reduced).mean(1))
