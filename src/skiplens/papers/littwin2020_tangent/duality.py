"""Figure 4 and theorems 3 and 4: the Jacobian in one matrix has the moments of the network reduced to that matrix."""

import math
from typing import Literal

import torch
from torch import Tensor

from skiplens.base import Float, option
from skiplens.kernels.finite_width.matrix_free import sample_jacobian_norms, sample_reduced_outputs
from skiplens.kernels.finite_width.networks import ResNet, weight_law
from skiplens.kernels.finite_width.reduced_moments import reduced_moments
from skiplens.kernels.finite_width.simulation import Simulation, estimate
from skiplens.papers import statistics
from skiplens.papers.littwin2020_tangent.common import COMMON, DRAWN, MEMORY, NAMES, SIZES, Networks, repeated, tables
from skiplens.papers.statistics import Band, Readings, decide, mean_points, over_seeds, slope, stacked, values
from skiplens.papers.study import Item, Judgement, Preset, claim, claims
from skiplens.plots.figure import Bars, Figure, Line, Reference, numbers
from skiplens.sweeps.run import Run

SECOND, FOURTH = 0.1, 0.3  # relative tolerances of second and of fourth moments, whose tails are heavy
LOWEST_RATIO = 1 / 3  # of E‖J‖⁴ to E f⁴, for any weights with c₄ ≤ 3; Gaussian ones lie exactly on it
RATIO = FOURTH * LOWEST_RATIO  # tolerance on the bounds of that ratio: a fourth moment's, relative to the lowest


class Layer(Networks):
    """A random matrix's Jacobian norm, and the output of the network reduced to it (figure 4); residual only."""


class Duality(Networks):
    """Moments of reduced networks, path parts and Jacobians of every matrix (theorems 3 and 4)."""

    depth: int = option(4, "blocks or layers")
    width: int = option(16, "units of a layer")
    branch_scale: float = option(0.5, "scale of each matrix of a branch")
    networks: int = option(20000, "networks drawn")
    law: Literal["gaussian", "uniform", "rademacher", "laplace"] = option("gaussian", "of the weights")
    features: int = option(1, "of the input")

    def numbers_drawn(self) -> int:
        """Whole matrices."""
        return super().numbers_drawn() * self.width


def layer(settings: Layer) -> dict[str, Tensor]:
    """Squared Jacobian norm of a matrix drawn at random, and the squared output of the reduced network."""
    network, generator = settings.network(), settings.stream()
    matrix = int(torch.randint(settings.depth * settings.branch_depth, (), generator=generator))
    block = matrix // settings.branch_depth + 1
    norms = sample_jacobian_norms(network, settings.networks, generator, memory=MEMORY)
    outputs = sample_reduced_outputs(network, settings.networks, generator, block, memory=MEMORY)
    return {"jacobian_squared": norms[:, matrix], "output_squared": outputs.square(), "matrix": torch.tensor(matrix)}


def duality(settings: Duality) -> dict[str, Tensor]:
    """Second and fourth moments for every matrix: of the reduced network, the path part and the Jacobian's norm."""
    # One input with ‖x‖² = d whose features are in no simple ratio to each other.
    x = torch.arange(1, settings.features + 1, dtype=torch.float64).add(0.5).sqrt()[None]
    x = x * (settings.features**0.5 / x.norm())
    simulation = Simulation(settings.network(), settings.law, memory=MEMORY)
    drawn = simulation.matrices(x, settings.networks, settings.stream())
    return {
        "reduced_second": drawn.reduced.pow(2).mean(0),
        "reduced_fourth": drawn.reduced.pow(4).mean(0),
        "path_second": drawn.path_part.pow(2).mean(0),
        "path_fourth": drawn.path_part.pow(4).mean(0),
        "jacobian_second": drawn.jacobian_squared.mean(0),
        "jacobian_fourth": drawn.jacobian_squared.pow(2).mean(0),
    }


def fig4_runs(preset: Preset, seed: int) -> list[Run]:
    """Single matrices at several depths."""
    sizes = SIZES[preset]
    return repeated(layer, Layer(networks=sizes.layers), preset, seed, depth=sizes.layer_depths)


def thm3_runs(preset: Preset, seed: int) -> list[Run]:
    """All matrices of small residual and dense networks."""
    base = Duality(networks=SIZES[preset].duality)
    return repeated(duality, base, preset, seed, architecture=("resnet", "densenet"))


def thm4_runs(preset: Preset, seed: int) -> list[Run]:
    """The same, and residual networks with two other laws of the weights."""
    # Several features: with one, sums of ±1 are often exactly zero, and at zero the theorem's gates are not defined.
    base = Duality(networks=SIZES[preset].duality, features=8)
    return [*thm3_runs(preset, seed), *repeated(duality, base, preset, seed, law=("uniform", "rademacher"))]


@claim("Figure 4a", "ratio − 1 = 0")
def _second(readings: Readings) -> Judgement:
    """Second moments of ‖J^k‖ and of ‖f_(k)‖ closely match."""
    ratios = _by_depth(readings, "output_squared", 1) / _by_depth(readings, "jacobian_squared", 1)
    sentence = "Mean squared output of the reduced network over mean squared Jacobian norm, minus 1; worst depth."
    return decide(over_seeds(ratios - 1), Band.around(0.0, 2 * SECOND), sentence)


@claim("Figure 4b", "between 1/3 and 1")
def _fourth(readings: Readings) -> Judgement:
    """E‖J^k‖⁴ lies between the bounds from E f_(k)⁴."""
    ratios = _by_depth(readings, "jacobian_squared", 2) / _by_depth(readings, "output_squared", 2)
    sentence = (
        "Fourth moment of the Jacobian norm over that of the output, worst depth; for Gaussian weights it is 1/3."
    )
    return decide(over_seeds(ratios), Band.between(LOWEST_RATIO, 1.0, RATIO), sentence)


@claim("Figure 4a", "log(1 + α^m) a block")
def _growth(readings: Readings) -> Judgement:
    """Moments grow exponentially with depth (straight lines in log scale)."""
    rate = slope(values(readings, "depth", "layer"), _by_depth(readings, "jacobian_squared", 1).log())
    expected = math.log1p(0.3**2)
    sentence = f"Growth of the log second moment per block; α^m (1 + α^m)^(L-1) gives log 1.09 = {expected:.4f}."
    return decide(over_seeds(rate), Band.around(expected, 0.1 * expected), sentence)


def judge_moments(readings: Readings, architecture: str, order: str, part: str = "path") -> Judgement:
    """Moments of the path part, or of the Jacobian's norm, against those of the reduced network, matrix by matrix.

    Differences are over the mean of what is expected, so that no ratio of noisy numbers biases them.
    """
    sentence = f"{order.capitalize()} moment of the paths through a matrix over that of the reduced network, minus 1."
    if part == "jacobian":
        sentence = "Mean squared Jacobian norm of a matrix over the second moment of the reduced network, minus 1."
    found, expected = (_moment(readings, f"{name}_{order}", architecture) for name in (part, "reduced"))
    relative = over_seeds((found - expected) / expected.mean(0))
    return decide(relative, Band.around(0.0, SECOND if order == "second" else FOURTH), sentence)


def judge_gaussian_bounds(readings: Readings, architecture: str) -> Judgement:
    """The printed bounds for Gaussian weights."""
    found = over_seeds(_fourth_ratios(readings, architecture, "gaussian"))
    sentence = "E‖J‖⁴ / E f⁴ of a matrix, Gaussian weights: exactly 1/3, the printed lower bound."
    return decide(found, Band.between(LOWEST_RATIO, 1.0, RATIO), sentence)


def judge_other_bounds(readings: Readings, law: str) -> Judgement:
    """The printed lower bound for weights with c₄ < 3."""
    c4 = weight_law(law).fourth_moment
    found = over_seeds(_fourth_ratios(readings, "resnet", law))
    sentence = (
        f"E‖J‖⁴ / E f⁴ of a matrix, {law} weights (c₄ = {c4:g}). Printed: at least 1/c₄ = {1 / c4:.3f}. "
        f"Right: between 1/max(3, c₄) = 0.333 and 1/min(3, c₄) = {1 / min(3, c4):.3f}."
    )
    return statistics.decide_correction(
        (found, Band(1 / c4, math.inf)), (found, Band.between(LOWEST_RATIO, 1 / c4, RATIO)), sentence
    )


def _by_depth(readings: Readings, name: str, power: int) -> Float[Tensor, "replicates depths"]:
    """Moments of figure 4."""
    depths = values(readings, "depth", "layer")
    return torch.stack([stacked(readings, name, "layer", depth=depth).pow(power).mean(1) for depth in depths], dim=1)


def _moment(readings: Readings, name: str, architecture: str, law: str = "gaussian") -> Tensor:
    return stacked(readings, name, "duality", architecture=architecture, law=law)


def _fourth_ratios(readings: Readings, architecture: str, law: str) -> Float[Tensor, "replicates k"]:
    jacobian, reduced = (_moment(readings, f"{name}_fourth", architecture, law) for name in ("jacobian", "reduced"))
    return jacobian / reduced


FIG4 = (_second, _fourth, _growth)
_ARCHITECTURES = ("resnet", "densenet")

_PATHS = "E f_(k)^{0} = E (f^k)^{0} for every matrix ({1})."
_JACOBIANS, _GAUSSIAN = "E‖J^k‖² = E f_(k)² for every matrix", "E f⁴/c₄ ≤ E‖J^k‖⁴ ≤ E f⁴, Gaussian weights"

THM3 = claims(
    judge_moments,
    *(
        (f"{kind}_{order}", _PATHS.format(power, NAMES[kind]), "Theorem 3, Eq. 38", "ratio − 1 = 0", kind, order)
        for kind in _ARCHITECTURES
        for order, power in (("second", 2), ("fourth", 4))
    ),
)

THM4 = (
    *claims(
        judge_moments,
        *(
            (f"{k}_second", f"{_JACOBIANS} ({NAMES[k]}).", "Theorem 4.1", "ratio − 1 = 0", k, "second", "jacobian")
            for k in _ARCHITECTURES
        ),
    ),
    *claims(
        judge_gaussian_bounds,
        *(
            (f"{k}_gaussian", f"{_GAUSSIAN} ({NAMES[k]}).", "Theorem 4.2", "between 1/3 and 1", k)
            for k in _ARCHITECTURES
        ),
    ),
    *claims(
        judge_other_bounds,
        ("uniform", "E f⁴/c₄ ≤ E‖J^k‖⁴, uniform weights.", "Theorem 4.2", "at least 0.556", "uniform"),
        ("rademacher", "E f⁴/c₄ ≤ E‖J^k‖⁴, Rademacher weights.", "Theorem 4.2", "at least 1", "rademacher"),
    ),
)


def draw_fig4(readings: Readings) -> tuple[Figure, ...]:
    """Panels (a) second and (b) fourth moments against depth."""
    depths = values(readings, "depth", "layer")
    moments = [reduced_moments(ResNet(depth, 50, 2, 0.3)) for depth in depths]
    words = ("second_moments", "Figure 4a: second moments, ResNet, m = 2, α = 0.3")
    caption = "Both second moments lie on one line, which is exact, and grow exponentially with depth."
    marks = (
        mean_points(depths, _by_depth(readings, "jacobian_squared", 1), "‖J^k‖"),
        mean_points(depths, _by_depth(readings, "output_squared", 1), "‖f_(k)‖"),
        Line(numbers(depths), numbers([float(moment.second) for moment in moments]), "exact"),
    )
    second = statistics.figure(words, caption, ("depth L", "second moment"), marks, log="y")
    exact = torch.tensor([float(moment.fourth) for moment in moments])
    fourth = statistics.figure(
        ("fourth_moments", "Figure 4b: fourth moments, ResNet, m = 2, α = 0.3"),
        "The fourth moment of the Jacobian norm lies below that of the output by a factor 3: on the lower "
        "bound of Theorem 4, for Gaussian weights.",
        ("depth L", "fourth moment"),
        (
            mean_points(depths, _by_depth(readings, "jacobian_squared", 2), "‖J^k‖"),
            mean_points(depths, _by_depth(readings, "output_squared", 2), "‖f_(k)‖: upper bound"),
            Line(numbers(depths), numbers(exact), "exact, ‖f_(k)‖"),
            Line(numbers(depths), numbers(exact / 3), "a third of it: lower bound", dashed=True),
        ),
        log="y",
    )
    return second, fourth


def draw_thm3(readings: Readings) -> tuple[Figure, ...]:
    """Moments of the path part over those of the reduced network."""
    return tuple(_path_ratios(readings, architecture) for architecture in _ARCHITECTURES)


def draw_thm4(readings: Readings) -> tuple[Figure, ...]:
    """Fourth moments of Jacobians over those of reduced networks, for three laws."""
    laws = ("gaussian", "uniform", "rademacher")
    ratios = [estimate(_fourth_ratios(readings, "resnet", law).mean(1)) for law in laws]
    lower = [1 / weight_law(law).fourth_moment for law in laws]
    drawn = statistics.figure(
        ("fourth_moments", "Theorem 4: fourth moments, Jacobian over output"),
        "The paper prints 1/c₄ as the lower bound (the bars beside). Uniform and Rademacher weights fall below it; "
        "the right bounds are 1/max(3, c₄) (dotted, 1/3) and 1/min(3, c₄).",
        ("law of the weights", "E‖J‖⁴ / E f⁴"),
        (
            Bars(laws, numbers([r.value for r in ratios]), "measured", numbers([r.standard_error for r in ratios])),
            Bars(laws, numbers(lower), "lower bound as printed"),
            Reference(1 / 3, "1/3"),
        ),
    )
    return (drawn,)


def _path_ratios(readings: Readings, architecture: str) -> Figure:
    marks = []
    for order in ("second", "fourth"):
        path, reduced = (_moment(readings, f"{part}_{order}", architecture) for part in ("path", "reduced"))
        marks.append(mean_points(range(1, path.shape[1] + 1), path / reduced.mean(0), f"{order} moment"))
    return statistics.figure(
        (f"duality_{architecture}", f"Theorem 3: paths through a matrix, reduced {NAMES[architecture]}"),
        "Both moments agree for every matrix, although the two networks have different activations.",
        ("matrix, from input to output", "moment of f^k over that of f_(k)"),
        (*marks, Reference(1.0)),
    )


_FIG4 = (*DRAWN, "The paper gives no width and no depths for figure 4: here n = 50.")
_SMALL = (*COMMON, "The theorem gives no example: here L = 4, n = 16, α = 0.5.")

ITEMS = (
    Item("fig4", "moments of Jacobians and of reduced networks", fig4_runs, FIG4, draw_fig4, tables, _FIG4),
    Item("thm3", "duality of paths and reduced networks", thm3_runs, THM3, draw_thm3, tables, _SMALL),
    Item("thm4", "moments of Jacobians from reduced networks", thm4_runs, THM4, draw_thm4, tables, _SMALL),
)
