"""Theorem 2.3: gradient descent at a linear rate, where smoothness and Polyak-Łojasiewicz constant are known."""

import math

import torch
from torch import Tensor

from skiplens.base import Float, option
from skiplens.jacobians.systems.smoothness import certified_smoothness, descent_constant
from skiplens.papers import statistics
from skiplens.papers.macdonald2023_regularity import common
from skiplens.papers.macdonald2023_regularity.common import HIDDEN, ROUNDING, WIDTHS, arrays, descend
from skiplens.papers.macdonald2023_regularity.guaranteed import GuaranteedNetwork, guaranteed_loss, uniform_bound
from skiplens.papers.statistics import Band, Readings, decide, exactly
from skiplens.papers.study import Item, Judgement, Preset, claim, claims
from skiplens.plots.figure import Figure, Line, Mark, bundle, colour, numbers
from skiplens.sweeps.run import Run

STEPS = (0.1, 0.5, 1.0, 1.5, 1.9)  # step sizes η β; the theorem wants less than 2
REPLICATES: dict[Preset, int] = {"smoke": 3, "laptop": 6, "paper": 50}


class Quadratic(statistics.ReplicateSettings):
    """Least squares ½|Aθ − y|² with fewer equations than unknowns."""

    equations: int = option(10, "rows of A")
    unknowns: int = option(30, "columns of A")
    iterations: int = option(200, "steps of gradient descent")


class NonConvex(statistics.ReplicateSettings):
    """A residual network with the square cost whose constants are certified for all parameters below the first loss."""

    iterations: int = option(200, "steps of gradient descent")
    scale: float = option(1.0, "size of the first parameters")


def descent_quadratic(settings: Quadratic) -> dict[str, Tensor]:
    """Losses (steps, iterations + 1), the bounds of equation (4), and decreases over |∇ℓ|², each step size a row."""
    generator = settings.stream()
    A, y, start = (
        torch.randn(shape, dtype=torch.float64, generator=generator)
        for shape in ((settings.equations, settings.unknowns), (settings.equations,), (settings.unknowns,))
    )
    values = torch.linalg.svdvals(A)
    beta, mu = float(values[0] ** 2), float(2 * values[-1] ** 2)  # |Aᵀr|² >= σ² |r|² = 2 σ² ℓ
    etas = torch.tensor(STEPS, dtype=torch.float64) / beta
    theta, losses, gradients = start.expand(len(etas), -1), [], []
    for _ in range(settings.iterations + 1):  # all step sizes at once
        residual = theta @ A.T - y
        gradient = residual @ A
        losses.append(residual.square().sum(1) / 2)
        gradients.append(gradient.square().sum(1))
        theta = theta - etas[:, None] * gradient
    loss = torch.stack(losses, dim=1)
    return {
        "loss": loss,
        "bound": _bounds(loss, etas, beta, mu),
        "decrease": -loss.diff(dim=1) / torch.stack(gradients[:-1], dim=1),
        "beta": torch.tensor(beta, dtype=torch.float64),
    }


def descent_network(settings: NonConvex) -> dict[str, Tensor]:
    """Losses and bounds of a network, and the smallest eigenvalue of its first Hessian: it is not convex."""
    generator = settings.stream()
    network = GuaranteedNetwork(WIDTHS, HIDDEN)
    data = common.random_data(generator)
    loss = guaranteed_loss(network, (data.T, common.random_targets(generator).T))
    start = network.random_start(generator, settings.scale)
    beta = certified_smoothness(loss, float(loss(start))).finite()
    mu = uniform_bound(loss.data, network.margin, network.blocks) * loss.cost.domination(math.inf)
    etas = torch.tensor(STEPS, dtype=torch.float64) / beta
    rows = [[point.loss for point in descend(loss, start, float(eta), settings.iterations)] for eta in etas]
    losses = torch.tensor(rows, dtype=torch.float64)
    return {
        "loss": losses,
        "bound": _bounds(losses, etas, beta, mu),
        "lowest_curvature": torch.linalg.eigvalsh(loss.hessian(start))[0],
    }


def _bounds(losses: Float[Tensor, "sizes points"], etas: Tensor, beta: float, mu: float) -> Tensor:
    """(1 − μ η (1 − β η/2))^t ℓ_0 (equation 4, with ℓ* = 0)."""
    rates = torch.tensor([1 - mu * descent_constant(beta, eta) for eta in etas.tolist()], dtype=torch.float64)
    return losses[:, :1] * rates[:, None] ** torch.arange(losses.shape[1], dtype=torch.float64)


def _judge_rate(readings: Readings, measure: str) -> Judgement:
    loss, bound = arrays(readings, measure, "loss", "bound")
    sentence = (
        "Largest loss over bound (4) among all steps, step sizes from 0.1/β to 1.9/β and runs: no run may exceed it."
    )
    return decide(exactly((loss / bound)[:, :, 1:].max()), Band(-math.inf, 1 + ROUNDING, ROUNDING), sentence)


@claim("Section 2.1", "a negative eigenvalue of the Hessian")
def _not_convex(readings: Readings) -> Judgement:
    """A function with the Polyak-Łojasiewicz inequality need not be convex."""
    (lowest,) = arrays(readings, "descent_network", "lowest_curvature")
    sentence = (
        "Smallest eigenvalue of the Hessian at the starts of networks whose loss has the inequality for all parameters."
    )
    return decide(exactly(lowest.min()), Band(-math.inf, -ROUNDING, ROUNDING), sentence)


_LEAST_SQUARES = "Gradient descent with η < 2/β converges at the linear rate of equation (4): least squares."
_NETWORK, _AT_MOST = "The same for a residual network with certified constants.", "loss over bound at most 1"
CLAIMS = (
    *claims(
        _judge_rate,
        ("least_squares", _LEAST_SQUARES, "Theorem 2.3, Eq. 4", _AT_MOST, "descent_quadratic"),
        ("network", _NETWORK, "Theorem 2.3, Eq. 4", _AT_MOST, "descent_network"),
    ),
    _not_convex,
)


def draw(readings: Readings) -> tuple[Figure, ...]:
    """Least squares, and a network."""
    return (
        _figure(readings, "descent_quadratic", "least squares, 10 equations, 30 unknowns"),
        _figure(readings, "descent_network", "a residual network, square cost", " Its constants are worst cases."),
    )


def _figure(readings: Readings, measure: str, what: str, remark: str = "") -> Figure:
    loss, bound = (values / values[:, :, :1] for values in arrays(readings, measure, "loss", "bound"))
    x = torch.arange(loss.shape[2], dtype=torch.float64)
    marks: list[Mark] = []
    for index, place in enumerate((0, 2, 4)):  # of the step sizes
        marks += bundle(x, loss[:, place], f"η = {STEPS[place]}/β", index, logarithmic=True)
        mean = bound[:, place].log().mean(0).exp()
        marks.append(Line(numbers(x), numbers(mean), f"bound, η = {STEPS[place]}/β", True, colour(index)))
    caption = (
        "Losses over the first loss (mean and range over draws) stay below the bound of equation (4), dashed, "
        f"at every step size below 2/β.{remark}"
    )
    words = measure.removeprefix("descent_"), f"Theorem 2.3: {what}"
    return common.figure(words, caption, ("steps of gradient descent", "loss over first loss"), marks, "y")


def quadratics(preset: Preset, seed: int) -> list[Run]:
    """Least squares, which theorem 5.1 looks at again."""
    return statistics.replicated(descent_quadratic, Quadratic(), REPLICATES[preset], seed)


def runs(preset: Preset, seed: int) -> list[Run]:
    """Least squares and networks."""
    base = NonConvex(iterations={"smoke": 40, "laptop": 200, "paper": 2000}[preset])
    return [*quadratics(preset, seed), *statistics.replicated(descent_network, base, REPLICATES[preset], seed)]


_DEVIATIONS = (
    "The theorem gives no example: here least squares, whose constants are singular values, and our repaired network "
    "of theorem 5.1, whose constants are certified.",
)
ITEM = Item("thm2_3", "gradient descent at a linear rate", runs, CLAIMS, draw, statistics.raw_tables, _DEVIATIONS)
