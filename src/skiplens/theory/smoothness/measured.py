"""Smoothness as it is: the Hessian's norm where training goes, and the largest that a search finds."""

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import scipy.sparse.linalg
import torch

from skiplens.core.axes import Float, Tensor
from skiplens.theory.smoothness.training_loss import TrainingLoss

DENSE_PARAMETERS = 256

SAFETY = 1.9
"""Steps are this number over a smoothness; from 2 on they may go up."""


@dataclass(frozen=True, eq=False)
class Looseness:
    """A certified constant beside the Hessian norms measured along a trajectory."""

    certified: float
    measured: Float[Tensor, " points"]

    @property
    def factor(self) -> float:
        """How many times too large the certificate is for this trajectory."""
        return self.certified / float(self.measured.max())

    @property
    def certified_step(self) -> float:
        """A step that never increases the loss, whatever the parameters."""
        return SAFETY / self.certified

    @property
    def local_step(self) -> float:
        """A step that fits the roughest point measured: one to train with, certified by nothing."""
        return SAFETY / float(self.measured.max())


def local_smoothness(loss: TrainingLoss, parameters: Float[Tensor, " params"], generator: torch.Generator) -> float:
    """|H|_2 at one point: dense for few parameters, by Lanczos from a random vector otherwise."""
    if len(parameters) <= DENSE_PARAMETERS:
        return float(torch.linalg.matrix_norm(loss.hessian(parameters), 2))
    return abs(_top_eigenpair(loss, parameters, generator)[0])


def looseness(
    loss: TrainingLoss, trajectory: Iterable[Float[Tensor, " params"]], certified: float, generator: torch.Generator
) -> Looseness:
    """The certified constant beside the measured one at each point of a trajectory."""
    measured = [local_smoothness(loss, parameters, generator) for parameters in trajectory]
    return Looseness(certified, torch.tensor(measured, dtype=torch.float64))


def search_rough_point(
    loss: TrainingLoss, start: Float[Tensor, " params"], steps: int = 200, rate: float = 0.05
) -> tuple[float, Float[Tensor, " params"]]:
    """The largest |H|_2 found by gradient ascent on it from `start`, and where: an adversary of a certificate.

    With v the top eigenvector, the gradient of |λ| = |vᵀ H v| in the parameters is that of the form with v held fixed.
    """
    variable = start.detach().clone()
    ascent = torch.optim.Adam([variable.requires_grad_()], lr=rate)
    best, place = 0.0, start
    for _ in range(steps):
        values, vectors = torch.linalg.eigh(loss.hessian(variable.detach()))
        top = int(values.abs().argmax())
        if float(values[top].abs()) > best:
            best, place = float(values[top].abs()), variable.detach().clone()
        ascent.zero_grad()
        (-values[top].sign() * _quadratic_form(loss, variable, vectors[:, top])).backward()
        ascent.step()
    return best, place


def _quadratic_form(loss: TrainingLoss, variable: Tensor, direction: Tensor) -> Tensor:
    gradient = torch.autograd.grad(loss(variable), variable, create_graph=True)[0]
    return torch.autograd.grad(gradient @ direction, variable, create_graph=True)[0] @ direction


def _top_eigenpair(loss: TrainingLoss, parameters: Tensor, generator: torch.Generator) -> tuple[float, np.ndarray]:
    def matvec(vector: np.ndarray) -> np.ndarray:
        direction = torch.from_numpy(np.ascontiguousarray(vector).ravel()).to(parameters)
        return loss.hessian_product(parameters, direction).double().cpu().numpy()

    size = len(parameters)
    operator = scipy.sparse.linalg.LinearOperator((size, size), matvec=matvec, dtype=np.float64)
    start = torch.randn(size, dtype=torch.float64, device=generator.device, generator=generator).cpu().numpy()
    values, vectors = scipy.sparse.linalg.eigsh(operator, k=1, which="LM", v0=start, tol=1e-6)
    return float(values[0]), vectors[:, 0]
