"""Plain gradient descent on a training loss, one point after the other."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import islice

from skiplens.core.axes import Float, Tensor
from skiplens.theory.smoothness import TrainingLoss


@dataclass(frozen=True, eq=False)
class DescentPoint:
    """One point of a run: parameters, loss, gradient and the step that is taken from here."""

    parameters: Float[Tensor, " params"]
    loss: float
    gradient: Float[Tensor, " params"]
    step: float

    @property
    def squared_gradient(self) -> float:
        """|∇ℓ|²."""
        return float(self.gradient.square().sum())


def descend(
    loss: TrainingLoss, start: Float[Tensor, " params"], step: float | Callable[[float], float], steps: int
) -> Iterator[DescentPoint]:
    """The start and the points after 1, …, `steps` steps of gradient descent.

    Args:
        loss: What is minimised.
        start: First parameters.
        step: Step size η, or a function of the present loss that gives it.
        steps: How many steps are taken.
    """
    return islice(_forever(loss, start, step), steps + 1)


def _forever(loss: TrainingLoss, start: Tensor, step: float | Callable[[float], float]) -> Iterator[DescentPoint]:
    parameters = start.detach()
    while True:
        value, gradient = loss.with_gradient(parameters)
        size = step(float(value)) if callable(step) else step
        yield DescentPoint(parameters, float(value), gradient, size)
        parameters = parameters - size * gradient
