"""Training in the kernel regime: predictions and loss after gradient flow or gradient descent, in closed form.

The loss is ℒ = ‖f − y‖², summed over samples and outputs; with a constant kernel K the predictions follow
f_t = y + exp(−2Kt)(f_0 − y). The kernel is the limiting one or the empirical one of a finite network.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from skiplens.base import Float, Int, InvalidInputError


@dataclass(frozen=True, eq=False)
class Start:
    """The predictions f_0 at the training inputs before training: a known network's `mean`, 0 if not given.

    Or those of random networks with a `covariance`, the same for every output (`kernel.nngp(X)`).
    """

    mean: Float[Tensor, "samples outputs"] | None = None
    covariance: Float[Tensor, "samples samples"] | None = None


@dataclass(frozen=True, eq=False)
class Unseen:
    """Inputs that are not trained on: their kernel with the training inputs, and f_0 there, 0 if not given."""

    kernel: Float[Tensor, "other_samples samples"]
    start: Float[Tensor, "other_samples outputs"] | None = None


@dataclass(frozen=True, eq=False)
class KernelTrajectory:
    """At each of the asked times mean predictions, also at unseen inputs, and the mean of ‖f − y‖² over networks."""

    predictions: Float[Tensor, "times samples outputs"]
    unseen: Float[Tensor, "times other_samples outputs"] | None
    loss: Float[Tensor, " times"]


def gradient_flow(
    kernel: Float[Tensor, "samples samples"],
    targets: Float[Tensor, "samples outputs"],
    times: Float[Tensor, " times"],
    start: Start | None = None,
    unseen: Unseen | None = None,
) -> KernelTrajectory:
    """Predictions and loss at each time of ḟ = −2K(f − y)."""
    if bool((times < 0).any()):
        raise InvalidInputError(f"times must not be negative, got {float(times.min())}.")
    eigenvalues, vectors = torch.linalg.eigh(kernel)
    times = times.to(kernel).unsqueeze(1)
    exponent = -2 * times * eigenvalues
    gone = _divided(-torch.expm1(exponent), eigenvalues, 2 * times)
    return _trajectory(vectors, exponent.exp(), gone, targets, start or Start(), unseen)


def gradient_descent(
    kernel: Float[Tensor, "samples samples"],
    targets: Float[Tensor, "samples outputs"],
    steps: Int[Tensor, " times"],
    learning_rate: float,
    start: Start | None = None,
    unseen: Unseen | None = None,
) -> KernelTrajectory:
    """Predictions and loss after each number of steps f ← f − 2ηK(f − y).

    They diverge if the learning rate η exceeds `largest_learning_rate(kernel)`.
    """
    if bool((steps < 0).any()) or not learning_rate > 0:
        came = f"got {int(steps.min())} and {learning_rate}"
        raise InvalidInputError(f"steps must not be negative and learning_rate must be positive, {came}.")
    eigenvalues, vectors = torch.linalg.eigh(kernel)
    count = steps.to(kernel).unsqueeze(1)
    step = 2 * learning_rate * eigenvalues
    remaining = (1 - step) ** count
    # 1 − (1 − step)^count without the loss of digits that small eigenvalues would suffer
    gone = torch.where(step < 0.5, -torch.expm1(count * torch.log1p(-step.clamp_max(0.5))), 1 - remaining)
    gone = _divided(gone, eigenvalues, 2 * learning_rate * count)
    return _trajectory(vectors, remaining, gone, targets, start or Start(), unseen)


def largest_learning_rate(kernel: Float[Tensor, "samples samples"]) -> float:
    """1/λ_max: gradient descent on ‖f − y‖² converges for every smaller learning rate."""
    return 1 / float(torch.linalg.eigvalsh(kernel)[-1])


def _divided(gone: Tensor, eigenvalues: Tensor, at_zero: Tensor) -> Tensor:
    zero = eigenvalues == 0
    return torch.where(zero, at_zero, gone / torch.where(zero, 1.0, eigenvalues))


def _trajectory(
    vectors: Tensor, remaining: Tensor, gone: Tensor, targets: Tensor, start: Start, unseen: Unseen | None
) -> KernelTrajectory:
    """What is left of a residual along each eigenvector is (times, eigenvalues); `gone` is over the eigenvalue."""
    begin = torch.zeros_like(targets) if start.mean is None else start.mean
    residual = vectors.T @ (targets - begin)
    left = remaining.unsqueeze(2) * residual
    loss = left.square().sum(dim=(1, 2))
    if start.covariance is not None:
        spread = (vectors.T @ start.covariance @ vectors).diagonal()
        loss = loss + targets.shape[1] * (remaining.square() * spread).sum(dim=1)
    weights = vectors @ (gone.unsqueeze(2) * residual)
    elsewhere = None if unseen is None else unseen.kernel @ weights + (0 if unseen.start is None else unseen.start)
    return KernelTrajectory(targets - vectors @ left, elsewhere, loss)
