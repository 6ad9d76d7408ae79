"""Kernels of many random networks, with their mean, their variance and the standard errors of both."""

from dataclasses import dataclass

import torch

from skiplens.core.axes import Float, Tensor
from skiplens.core.errors import InvalidInputError


@dataclass(frozen=True)
class Estimate:
    """A Monte-Carlo mean with its standard error, entry by entry."""

    value: Tensor
    standard_error: Tensor

    def deviation(self, expected: Tensor | float) -> Tensor:
        """How many standard errors the estimate lies above `expected`."""
        return (self.value - expected) / self.standard_error


@dataclass(frozen=True)
class KernelSamples:
    """The tangent kernels of independent random networks on the same inputs."""

    samples: Float[Tensor, "networks samples samples"]

    @property
    def mean(self) -> Estimate:
        """Mean kernel over the networks."""
        return estimate(self.samples)

    @property
    def second_moment(self) -> Estimate:
        """Mean of the squared entries."""
        return estimate(self.samples.double().square())

    @property
    def variance(self) -> Estimate:
        """Variance over the networks; its standard error is that of the mean of squared deviations."""
        squares = (self.samples.double() - self.samples.double().mean(0)).square()
        count = len(squares)
        found = estimate(squares)
        return Estimate(found.value * count / (count - 1), found.standard_error * count / (count - 1))


def estimate(draws: Tensor) -> Estimate:
    """The mean over the first axis and its standard error, in float64."""
    if len(draws) < 2:
        raise InvalidInputError(f"A standard error needs at least 2 draws, got {len(draws)}. Draw more networks.")
    draws = draws.double()
    return Estimate(draws.mean(0), draws.std(0) / len(draws) ** 0.5)


def unit_inputs(inputs: Tensor) -> tuple[Tensor, Tensor]:
    """The inputs on the unit sphere (zero stays zero) and the factors ‖x‖‖x′‖/d that the kernels of these lack."""
    if inputs.dim() != 2 or not inputs.is_floating_point() or 0 in inputs.shape:
        raise InvalidInputError(
            f"inputs must be a matrix of floating-point numbers (samples, features), got {inputs.dtype} of shape "
            f"{tuple(inputs.shape)}."
        )
    if not bool(inputs.isfinite().all()):
        raise InvalidInputError("inputs contain infinite or undefined numbers; a kernel of these does not exist.")
    wide = inputs.double()
    norms = torch.linalg.vector_norm(wide, dim=1, keepdim=True)
    return wide / torch.where(norms == 0, torch.ones_like(norms), norms), norms @ norms.mT / inputs.shape[1]


def require_same_device(inputs: Tensor, generator: torch.Generator) -> None:
    """Refuse a generator that draws elsewhere than where the inputs are."""
    if generator.device.type != inputs.device.type:
        raise InvalidInputError(
            f"The generator is on {generator.device} and the inputs are on {inputs.device}; make the generator with "
            f"torch.Generator({str(inputs.device)!r})."
        )


def chunks(networks: int, largest: int) -> list[int]:
    """`networks` cut into equal chunks of at most `largest`."""
    if networks < 1:
        raise InvalidInputError(f"networks must be at least 1, got {networks}.")
    pieces = -(-networks // largest)
    return [networks // pieces + (piece < networks % pieces) for piece in range(pieces)]
