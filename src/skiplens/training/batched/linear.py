"""Many linear networks trained on the second moments of their data: the number of samples costs nothing."""

from functools import partial
from pathlib import Path

import torch

from skiplens.core.axes import Float, Tensor
from skiplens.core.fingerprint import fingerprint
from skiplens.core.progress import Progress, silent
from skiplens.theory.shortcut_hessian import SecondMoments
from skiplens.training.batched.chains import Chains, Chunk, check_starts
from skiplens.training.batched.drive import Drive
from skiplens.training.batched.plan import ManyRuns, Plan
from skiplens.training.batched.tape import Instruction, product
from skiplens.training.checkpoints import Checkpoint


def train_linear_networks(
    starts: Float[Tensor, "nets matrices width width"],
    learning_rates: Float[Tensor, " nets"],
    moments: SecondMoments,
    plan: Plan,
    *,
    branch_depth: int = 2,
    shortcut: bool = True,
    checkpoint: Checkpoint | Path | str | None = None,
    progress: Progress = silent,
) -> ManyRuns:
    """Gradient descent of many linear networks on 1/(2m) Σ ‖y − W x‖², all samples in each step.

    An epoch costs three products of two matrices for each matrix of a network, which is the least that gradients cost.

    Args:
        starts: The matrices W_1, …, W_D of each network in order of application.
        learning_rates: Of each network.
        moments: Of the data.
        plan: Epochs, and when to look.
        branch_depth: Matrices of a unit, the n of an n-shortcut network; without shortcuts it changes nothing.
        shortcut: Whether a unit is I + W_n … W_1, or the product alone.
        checkpoint: File to keep the run in; it goes on from there with the same bits.
        progress: Told the epochs made.
    """
    check_starts(starts, learning_rates, branch_depth, len(moments.inputs))
    rates, data = learning_rates.to(starts), _like(moments, starts)
    unit = branch_depth if shortcut else (2 if starts.shape[1] % 2 == 0 else 1)
    build = partial(LinearChunk, moments=data, branch_depth=unit, shortcut=shortcut)
    matrix = starts[0, 0].numel() * starts.element_size()
    program = Chains(starts, rates, build, bytes_of_a_net=4 * starts.shape[1] * matrix)
    identity = {
        "networks": f"{'shortcut' if shortcut else 'plain'} {unit}",
        "plan": str(plan),
        "first weights": fingerprint([("starts", starts), ("rates", rates)]),
        "data": fingerprint([("inputs", data.inputs), ("cross", data.cross)]),
    }
    return Drive(program, rates, plan).run(identity, checkpoint, progress)


def network_maps(
    weights: Float[Tensor, "nets matrices width width"], branch_depth: int = 2, shortcut: bool = True
) -> Float[Tensor, "nets width width"]:
    """What each linear network multiplies its input with."""
    identity = torch.eye(weights.shape[-1], dtype=weights.dtype, device=weights.device)
    whole = identity.expand(len(weights), -1, -1)
    for unit in weights.unflatten(1, (-1, branch_depth)).unbind(1):
        branch = whole
        for matrix in unit.unbind(1):
            branch = matrix @ branch
        whole = whole + branch if shortcut else branch
    return whole


def _like(moments: SecondMoments, starts: Tensor) -> SecondMoments:
    return SecondMoments(moments.inputs.to(starts), moments.cross.to(starts), moments.target_power.to(starts))


class LinearChunk(Chunk):
    """Linear networks and the instructions of their gradient.

    Units have the maps P_r = [I +] W_n … W_1. Forwards h_r = P_r h_{r-1}; backwards, with q the transposed derivative
    by h, q_{r-1} = q_r P_r. The derivative by P_r is M = (h_{r-1} q_r)ᵀ, and inside a unit that by W_l is
    (W_n … W_{l+1})ᵀ M (W_{l-1} … W_1)ᵀ. Everything outside of the two recursions is one product of whole stacks, and
    q starts with the learning rate as a factor, so that the gradients come as steps.
    """

    def __init__(
        self, weights: Tensor, rates: Tensor, moments: SecondMoments, branch_depth: int, shortcut: bool
    ) -> None:
        super().__init__(weights, rates)
        self.moments, self.best, self.lowest = moments, moments.best_map(), moments.lowest_loss()
        units = weights.shape[0] // branch_depth
        self.matrices = weights.unflatten(0, (units, branch_depth)).unbind(1)
        self.products = [self.matrices[0], *(torch.empty_like(self.matrices[0]) for _ in range(branch_depth - 1))]
        self.maps = self.products[-1] if branch_depth > 1 else torch.empty_like(weights)
        self.forwards = torch.empty_like(weights[:1]).repeat(units + 1, 1, 1, 1)
        self.forwards[0] = torch.eye(weights.shape[-1], dtype=weights.dtype, device=weights.device)
        self.backwards = torch.empty_like(self.maps)
        self.gradient = [*self._unit_maps(shortcut), *self._recursions(), *self._steps()]

    def losses(self) -> Float[Tensor, " nets"]:
        """L* + ½ tr((W − W*) S_xx (W − W*)ᵀ)."""
        gap = self.forwards[-1] - self.best
        return self.lowest + ((gap @ self.moments.inputs) * gap).sum((1, 2)) / 2

    def _unit_maps(self, shortcut: bool) -> list[Instruction]:
        found = [
            product(matrix, before, after)
            for matrix, before, after in zip(self.matrices[1:], self.products, self.products[1:], strict=False)
        ]
        if len(self.matrices) == 1:
            found.append(partial(self.maps.copy_, self.matrices[0]))
        if shortcut:
            found.append(partial(self.maps.diagonal(dim1=-2, dim2=-1).add_, 1))
        return found

    def _recursions(self) -> list[Instruction]:
        P, h, q = self.maps, self.forwards, self.backwards
        units = len(P)
        cross, rates = self.moments.cross.T.contiguous(), self.rates[:, None, None]
        return [
            partial(h[1].copy_, P[0]),
            *(product(P[r], h[r], h[r + 1]) for r in range(1, units)),
            product(self.moments.inputs.expand_as(h[units]), h[units].mT, q[-1]),  # q = rate (W S_xx − S_yx)ᵀ
            partial(q[-1].sub_, cross),
            partial(q[-1].mul_, rates),
            *(product(q[r], P[r], q[r - 1]) for r in range(units - 1, 0, -1)),
        ]

    def _steps(self) -> list[Instruction]:
        steps, last = self.steps.unflatten(0, (-1, len(self.matrices))).unbind(1), len(self.matrices) - 1
        if last == 0:
            return [product(self.backwards.mT, self.forwards[:-1].mT, steps[0])]
        slope = torch.empty_like(self.maps)  # transposed, of the product of the matrices up to the present one
        found = [product(self.forwards[:-1], self.backwards, slope)]
        for place in range(last, 0, -1):
            found.append(product(slope.mT, self.products[place - 1].mT, steps[place]))
            if place == 1:
                found.append(product(self.matrices[1].mT, slope.mT, steps[0]))
            else:
                before = torch.empty_like(self.maps)
                found.append(product(slope, self.matrices[place], before))
                slope = before
        return found
