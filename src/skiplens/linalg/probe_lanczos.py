"""Lanczos from several probes at once: separate recurrences, one block product a step."""

from dataclasses import dataclass

import torch

from skiplens.core.axes import Float, Tensor
from skiplens.core.fresh_memory import fresh_empty
from skiplens.core.progress import Progress, silent, track
from skiplens.linalg.operator import SymmetricOperator


@dataclass(frozen=True)
class Recurrences:
    """For each probe the Lanczos matrix T, in float64 on the processor, and the norm that would come next.

    Where the Krylov space of a probe ended, its off-diagonal is zero from there on and its diagonal repeats the first
    entry, which lies between the extreme eigenvalues and has no weight.
    """

    diagonal: Float[Tensor, "probes steps"]
    off_diagonal: Float[Tensor, "probes steps"]
    """Entry k couples steps k and k + 1; the last one is the norm of what the basis leaves out."""

    def matrices(self) -> Float[Tensor, "probes steps steps"]:
        """T of each probe."""
        inner = self.off_diagonal[:, :-1]
        return torch.diag_embed(self.diagonal) + torch.diag_embed(inner, 1) + torch.diag_embed(inner, -1)


def tridiagonalise_each(
    operator: SymmetricOperator,
    probes: Float[Tensor, "size probes"],
    steps: int,
    reorthogonalise: bool = True,
    progress: Progress = silent,
) -> Recurrences:
    """Lanczos from each column of `probes`, all columns multiplied together.

    Args:
        operator: The matrix.
        probes: Start vectors.
        steps: Products for each probe; at most the size.
        reorthogonalise: Keep the whole basis (size × probes × steps numbers) and make each new vector orthogonal to
            it, twice. Without it four vectors a probe are enough; eigenvalues then come back as several copies whose
            weights add up to the right one (Greenbaum 1989), so that densities stay right and only take more steps.
        progress: Called after each step.
    """
    state = _State(operator, probes, min(steps, operator.size), reorthogonalise)
    for step in track(range(state.steps), "Lanczos steps", state.steps, progress):
        state.advance(step)
    return state.result()


class _State:
    """Rows are probes: the newest vectors, those before them, and all of them where they are kept."""

    def __init__(self, operator: SymmetricOperator, probes: Tensor, steps: int, keep: bool) -> None:
        self.operator, self.steps = operator, steps
        rows = probes.T.contiguous()
        self.newest = rows / rows.norm(dim=1, keepdim=True)
        self.previous = torch.zeros_like(self.newest)
        self.basis = fresh_empty(rows, rows.shape[0], steps if keep else 0, rows.shape[1])
        self.alphas: list[Tensor] = []
        self.betas: list[Tensor] = [rows.new_zeros(rows.shape[0])]
        self.scale = rows.new_zeros(rows.shape[0])

    def advance(self, step: int) -> None:
        """Multiply the newest vectors and take from the products all that is known already."""
        product = (self.operator @ self.newest.T).T.contiguous()
        alpha = (self.newest * product).sum(1)
        remainder = product - alpha[:, None] * self.newest - self.betas[-1][:, None] * self.previous
        if self.basis.shape[1]:
            self.basis[:, step] = self.newest
            remainder = _outside(remainder, self.basis[:, : step + 1])
        beta = remainder.norm(dim=1)
        self.scale = torch.maximum(self.scale, torch.maximum(alpha.abs(), beta))
        beta = torch.where(beta > self._rounding() * self.scale, beta, torch.zeros_like(beta))
        self.alphas.append(alpha)
        self.betas.append(beta)
        self.previous = self.newest
        self.newest = torch.where(beta[:, None] > 0, remainder, 0) / torch.where(beta > 0, beta, 1)[:, None]

    def result(self) -> Recurrences:
        """The matrices in float64; steps after the end of a Krylov space repeat the first diagonal entry."""
        diagonal = torch.stack(self.alphas, dim=1).double().cpu()
        off_diagonal = torch.stack(self.betas[1:], dim=1).double().cpu()
        ended = (off_diagonal == 0).cumsum(1) - (off_diagonal == 0).long() > 0
        return Recurrences(torch.where(ended, diagonal[:, :1], diagonal), off_diagonal)

    def _rounding(self) -> float:
        """Below this a remainder is rounding: an orthogonalisation against the whole size makes about √size of it."""
        return 4 * torch.finfo(self.newest.dtype).eps * self.operator.size**0.5


def _outside(rows: Float[Tensor, "probes size"], basis: Float[Tensor, "probes steps size"]) -> Tensor:
    for _ in range(2):  # once leaves what rounding made; twice is enough
        inside = torch.bmm(basis, rows[:, :, None])
        rows = rows - torch.bmm(basis.mT, inside)[:, :, 0]
    return rows
