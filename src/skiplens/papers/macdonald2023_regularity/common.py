"""What the theorems share: small residual networks on random data, gradient descent, and how draws are shown."""

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor

from skiplens.base.axes import Float
from skiplens.jacobians.systems.affine import Affine
from skiplens.jacobians.systems.elementwise import NONLINEARITIES, Elementwise, Residual, SkipMap
from skiplens.jacobians.systems.layer import Composition
from skiplens.jacobians.systems.parameterisation import EntryNormalised, Free, Parameterisation, WeightNormalised
from skiplens.jacobians.systems.smoothness import TrainingLoss
from skiplens.papers.statistics import Readings, stacked
from skiplens.papers.statistics import figure as figure
from skiplens.plots.figure import Band, Line, Mark, bundle, numbers

WIDTHS = (6, 5, 4, 3)
FEATURES, CLASSES = WIDTHS[0], WIDTHS[-1]
SAMPLES, HIDDEN, MARGIN = 4, 4, 0.1
SCALES = tuple(10 ** (power / 2) for power in range(-3, 4))  # sizes of parameters
ROUNDING = 1e-9  # a theorem leaves no room but this
LARGEST_SCALES = 3  # over so many of them the exponents of what grows or falls with the parameters are taken


@dataclass(frozen=True)
class RandomResidualNetwork:
    """en(W) X, then blocks I Z + s_b wn(B) φ(s_a wn(A) Z) with |Jg|₂ < 0.9; free matrices if not `normalised`."""

    widths: tuple[int, ...] = WIDTHS
    hidden: int = HIDDEN
    normalised: bool = True
    nonlinearity: str = "tanh"

    def system(self) -> Composition:
        """The network as layers on a data matrix."""
        features, outputs = self.widths[:2]
        first: Parameterisation = EntryNormalised(outputs, features) if self.normalised else Free(outputs, features)
        blocks = []
        for number, (inputs, outputs) in enumerate(pairwise(self.widths[1:]), start=2):
            branch = (
                Affine(self._matrix(self.hidden, inputs, 1.0), name=f"inner {number}"),
                Elementwise(NONLINEARITIES[self.nonlinearity], self.hidden),
                Affine(self._matrix(outputs, self.hidden, 1 - MARGIN), name=f"outer {number}"),
            )
            blocks.append(Residual(SkipMap.truncation(outputs, inputs), Composition(branch), name=f"block {number}"))
        return Composition((Affine(first, name="first"), *blocks))

    def _matrix(self, outputs: int, inputs: int, largest: float) -> Parameterisation:
        """Of norm below `largest` for all parameters, if normalised: rows below 1 alone do not give that."""
        if not self.normalised:
            return Free(outputs, inputs)
        return WeightNormalised(outputs, inputs, factor=largest / math.sqrt(outputs))


def random_data(generator: torch.Generator) -> Float[Tensor, "features samples"]:
    """Normal numbers: independent columns with probability 1."""
    return torch.randn(FEATURES, SAMPLES, dtype=torch.float64, generator=generator)


def random_labels(generator: torch.Generator) -> Tensor:
    """A class for each sample."""
    return torch.randint(CLASSES, (SAMPLES,), generator=generator)


def random_targets(generator: torch.Generator) -> Float[Tensor, "outputs samples"]:
    """Numbers to fit, of about the size of the outputs."""
    return torch.randn(CLASSES, SAMPLES, dtype=torch.float64, generator=generator)


def random_parameters(system: Composition, scale: float, generator: torch.Generator) -> Float[Tensor, " params"]:
    """Normal numbers times `scale`."""
    return scale * torch.randn(system.parameters, dtype=torch.float64, generator=generator)


@dataclass(frozen=True, eq=False)
class DescentPoint:
    """One point of a run: parameters, loss, gradient and the step that is taken from here."""

    parameters: Float[Tensor, " params"]
    loss: float
    gradient: Float[Tensor, " params"]
    step: float


def descend(
    loss: TrainingLoss, start: Float[Tensor, " params"], step: float | Callable[[float], float], steps: int
) -> Iterator[DescentPoint]:
    """The start and the points after 1, …, `steps` steps; the step size may be a function of the present loss."""
    parameters = start.detach()
    for _ in range(steps + 1):
        value, gradient = loss.with_gradient(parameters)
        size = step(float(value)) if callable(step) else step
        yield DescentPoint(parameters, float(value), gradient, size)
        parameters = parameters - size * gradient


def arrays(readings: Readings, measure: str, *names: str, **settings: Any) -> list[Tensor]:
    """These arrays of the readings of `measure` whose settings have the given values, each with one row a run."""
    return [stacked(readings, name, measure, **settings) for name in names]


def histogram(
    values: Float[Tensor, "draws values"], edges: Float[Tensor, " edges"], name: str, colour: str
) -> tuple[Band | Line, ...]:
    """The density in each bin, mean over the draws, with an area of one standard error to both sides."""
    width = edges.diff()
    density = torch.stack([torch.histogram(row.double(), edges.double()).hist for row in values])
    density = density / (values.shape[1] * width)
    mean, x = density.mean(0), edges.repeat_interleave(2)[1:-1]
    line = Line(numbers(x), numbers(mean.repeat_interleave(2)), name, colour=colour)
    if len(values) < 2:
        return (line,)
    error = density.std(0) / len(values) ** 0.5
    low, high = ((mean + sign * error).repeat_interleave(2) for sign in (-1, 1))
    return Band(numbers(x), numbers(low), numbers(high), colour=colour), line


def bundles(x: Float[Tensor, " places"], curves: Mapping[str, Float[Tensor, "draws places"]]) -> list[Mark]:
    """For each name the geometric mean of its curves and their range, in a colour of its own."""
    drawn = (bundle(x, rows, name, index, logarithmic=True) for index, (name, rows) in enumerate(curves.items()))
    return [mark for marks in drawn for mark in marks]
