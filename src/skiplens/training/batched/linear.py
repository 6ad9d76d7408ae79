"""Many linear networks trained on the second moments of their data: the number of samples costs nothing."""

from dataclasses import dataclass
from functools import partial

import torch

from skiplens.core.axes import Float, Tensor
from skiplens.core.fingerprint import fingerprint
from skiplens.core.progress import Progress, silent
from skiplens.theory.shortcut_hessian import SecondMoments
from skiplens.training.batched.chains import Chains, Chunk, check_starts
from skiplens.training.batched.drive import Drive
from skiplens.training.batched.plan import ManyRuns, Plan
from skiplens.training.batched.tape import Instruction, product


@dataclass(frozen=True)
class Units:
    """How the matrices of a linear network are put together.

    Attributes:
        branch_depth: Matrices of a unit, the n of an n-shortcut network; without shortcuts it changes rounding only.
        shortcut: Whether the map of a unit is I + W_n … W_1, or the product alone.
    """

    branch_depth: int = 2
    shortcut: bool = True


def train_linear_networks(
    starts: Float[Tensor, "nets matrices width width"],
    learning_rates: Float[Tensor, " nets"],
    moments: SecondMoments,
    plan: Plan,
    units: Units = Units(),  # noqa: B008 - frozen
    progress: Progress = silent,
) -> ManyRuns:
    """Gradient descent of many linear networks on 1/(2m) Σ ‖y − W x‖², all samples in each step.

    An epoch costs three products of two matrices for each matrix of a network, which is the least that gradients cost.

    Args:
        starts: The matrices W_1, …, W_D of each network in order of application.
        learning_rates: Of each network.
        moments: Of the data.
        plan: Epochs, when to look, and where to keep the run.
        units: What the matrices are put together to.
        progress: Told the epochs made.
    """
    check_starts(starts, learning_rates, units.branch_depth, len(moments.inputs))
    rates, data = learning_rates.to(starts), _like(moments, starts)
    build = partial(LinearChunk, moments=data, units=units)
    matrix = starts[0, 0].numel() * starts.element_size()
    program = Chains(starts, rates, build, bytes_of_a_net=4 * starts.shape[1] * matrix)
    identity = {
        "networks": str(units),
        "first weights": fingerprint([("starts", starts), ("rates", rates)]),
        "data": fingerprint([("inputs", data.inputs), ("cross", data.cross)]),
    }
    return Drive(program, rates, plan).run(identity, progress)


def network_maps(
    weights: Float[Tensor, "nets matrices width width"],
    units: Units = Units(),  # noqa: B008 - frozen
) -> Float[Tensor, "nets width width"]:
    """What each linear network multiplies its input with."""
    identity = torch.eye(weights.shape[-1], dtype=weights.dtype, device=weights.device)
    whole = identity.expand(len(weights), -1, -1)
    for unit in weights.unflatten(1, (-1, units.branch_depth)).unbind(1):
        branch = whole
        for matrix in unit.unbind(1):
            branch = matrix @ branch
        whole = whole + branch if units.shortcut else branch
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

    def __init__(self, weights: Tensor, rates: Tensor, moments: SecondMoments, units: Units) -> None:
        super().__init__(weights, rates)
        self.moments, self.best, self.lowest = moments, moments.best_map(), moments.lowest_loss()
        n, R = units.branch_depth, weights.shape[0] // units.branch_depth
        self.matrices = weights.unflatten(0, (R, n)).unbind(1)
        self.products = [self.matrices[0], *(torch.empty_like(self.matrices[0]) for _ in range(n - 1))]
        self.maps = self.products[-1] if n > 1 else torch.empty_like(weights)
        self.forwards = torch.empty_like(weights[:1]).repeat(R + 1, 1, 1, 1)
        self.forwards[0] = torch.eye(weights.shape[-1], dtype=weights.dtype, device=weights.device)
        self.backwards = torch.empty_like(self.maps)
        self.gradient = [*self._unit_maps(units.shortcut), *self._recursions(), *self._steps()]

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
