"""Linear and mid-ReLU networks that are chains of square matrices, trained a few at a time.

So few that what they touch stays in the cache. Paper: Li et al. 2016, Demystifying ResNet.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor

from skiplens.base import Float, InvalidInputError, Progress, silent
from skiplens.base.identity import fingerprint
from skiplens.linalg.second_moments import SecondMoments
from skiplens.training.batched.plan import CHECK_EVERY, BatchedPlan, Look, ManyRuns
from skiplens.training.checkpoints import Keeper

CACHE_BYTES = 2**24  # what the buffers of one chunk may take on a processor: a share of its last cache
DEVICE_BYTES = 2**32  # what they may take on a GPU; a constant, since other chunks could mean other rounding there
LIMITS = {torch.float64: 1e6, torch.float32: 1e4}  # with larger weights a network has diverged: products soon overflow

Instruction = Callable[[], Any]


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
    plan: BatchedPlan,
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
    data = SecondMoments(moments.inputs.to(starts), moments.cross.to(starts), moments.target_power.to(starts))
    build = partial(_LinearChunk, moments=data, units=units)
    chains = _Chains(starts, learning_rates.to(starts), plan, build, 4 * starts[0].numel() * starts.itemsize)
    return chains.run(str(units), fingerprint([("inputs", data.inputs), ("cross", data.cross)]), progress)


def train_rectified_networks(
    starts: Float[Tensor, "nets matrices width width"],
    learning_rates: Float[Tensor, " nets"],
    data: tuple[Float[Tensor, "samples width"], Float[Tensor, "samples width"]],
    plan: BatchedPlan,
    shortcut: bool = True,
    progress: Progress = silent,
) -> ManyRuns:
    """Gradient descent of many mid-ReLU networks on 1/(2m) Σ ‖y − f(x)‖², all samples in each step.

    A unit is h ↦ [h +] W_2 relu(W_1 h): the paper's 2-shortcut network, or the plain one with as many ReLUs.

    Args:
        starts: The matrices W_1, …, W_D of each network in order of application; their dtype is that of the training.
        learning_rates: Of each network.
        data: Inputs and targets, samples in rows.
        plan: Epochs, when to look, and where to keep the run.
        shortcut: Whether units have shortcuts.
        progress: Told the epochs made.
    """
    inputs, targets = data
    if inputs.ndim != 2 or inputs.shape != targets.shape or len(inputs) == 0:
        raise InvalidInputError(
            f"Inputs {tuple(inputs.shape)} and targets {tuple(targets.shape)} must have one shape (samples, width)."
        )
    check_starts(starts, learning_rates, 2, inputs.shape[1])
    columns = (inputs.T.to(starts).contiguous(), targets.T.to(starts).contiguous())
    build = partial(_RectifiedChunk, data=columns, shortcut=shortcut)
    activations = starts.shape[1] * inputs.numel() * starts.itemsize
    chains = _Chains(starts, learning_rates.to(starts), plan, build, activations)
    words = "rectified shortcut" if shortcut else "rectified plain"
    return chains.run(words, fingerprint([("inputs", columns[0]), ("targets", columns[1])]), progress)


def network_maps(
    weights: Float[Tensor, "nets matrices width width"],
    units: Units = Units(),  # noqa: B008 - frozen
) -> Float[Tensor, "nets width width"]:
    """What each linear network multiplies its input with."""
    whole = torch.eye(weights.shape[-1], dtype=weights.dtype, device=weights.device).expand(len(weights), -1, -1)
    for unit in weights.unflatten(1, (-1, units.branch_depth)).unbind(1):
        branch = whole
        for matrix in unit.unbind(1):
            branch = matrix @ branch
        whole = whole + branch if units.shortcut else branch
    return whole


def check_starts(starts: Tensor, rates: Tensor, branch_depth: int, features: int) -> None:
    """Refuse starts that are no stack of chains of square matrices, or that do not fit rates and data."""
    if starts.ndim != 4 or starts.shape[2] != starts.shape[3] or 0 in starts.shape:
        raise InvalidInputError(
            f"starts have shape {tuple(starts.shape)}; wanted (nets, matrices, width, width), as `drawn_starts` gives."
        )
    if rates.shape != starts.shape[:1] or not bool((rates > 0).all()):
        raise InvalidInputError(
            f"learning_rates have shape {tuple(rates.shape)}; wanted one number above 0 for each of {len(starts)} nets."
        )
    if branch_depth < 1 or starts.shape[1] % branch_depth:
        raise InvalidInputError(
            f"{starts.shape[1]} matrices cannot be divided into units of {branch_depth}; choose another depth."
        )
    if features != starts.shape[2]:
        raise InvalidInputError(f"The matrices are {starts.shape[2]} wide, but the data have {features} features.")


class _Chunk(ABC):
    """Some networks with their buffers and the instructions of an epoch."""

    def __init__(self, weights: Tensor, rates: Tensor) -> None:
        self.weights, self.rates = weights, rates  # (matrices, nets, width, width), changed by `advance`; one per net
        self.steps = torch.empty_like(weights)  # what an update takes away: the learning rate times the gradient
        self.gradient: list[Instruction] = []  # fill the steps

    @abstractmethod
    def losses(self) -> Float[Tensor, " nets"]:
        """The losses that belong to the last gradient."""

    def advance(self, epochs: int) -> None:
        play([*self.gradient, partial(self.weights.sub_, self.steps)] * epochs)

    def look(self) -> Look:
        play(self.gradient)
        norms = torch.linalg.matrix_norm(self.weights).mean(0)
        slopes = self.steps.square().sum((0, 2, 3)).sqrt() / self.rates
        return Look(self.losses(), norms, slopes)


class _Chains:
    """Networks that are chains of square matrices, in chunks, on their way through a plan."""

    def __init__(
        self,
        starts: Tensor,
        rates: Tensor,
        plan: BatchedPlan,
        build: Callable[[Tensor, Tensor], _Chunk],
        net_bytes: int,
    ) -> None:
        """`build` makes a chunk of weights and rates; the buffers of a network take `net_bytes` there."""
        self.rates, self.plan, self.build = rates, plan, build
        self.began_from = fingerprint([("starts", starts), ("rates", rates)])
        room = CACHE_BYTES if starts.device.type == "cpu" else DEVICE_BYTES
        self.nets_at_once = max(1, room // net_bytes)
        self.epoch, self.alive = 0, torch.arange(len(rates))
        self.diverged_at = torch.full((len(rates),), -1)
        self.records = tuple(sorted({*plan.record_at, plan.epochs}))
        self.histories = {name: rates.new_full((len(self.records), len(rates)), math.nan) for name in Look._fields}
        self.snapshots: dict[int, dict[str, Tensor]] = {}
        self._chunk(starts)

    def run(self, networks: str, data: str, progress: Progress) -> ManyRuns:
        """All epochs, from the checkpoint on where there is one; the words tell these networks and data from others."""
        plan, keeper = self.plan, Keeper(self.plan.checkpoint)
        words = f"{plan.epochs} epochs, records at {plan.record_at}, snapshots at {plan.snapshots_at}"
        identity = {"networks": networks, "first weights": self.began_from, "data": data, "plan": words}
        if kept := keeper.read(identity):
            self._restore(kept)
        for epoch in self._moments(keeper):
            for chunk in self.chunks if len(self.alive) else ():
                chunk.advance(epoch - self.epoch)
            self.epoch = epoch
            self._note()
            progress("training many networks", epoch, plan.epochs)
            if keeper.due(epoch) or epoch == plan.epochs:
                keeper.write({"began_as": identity, **self._state()})
        return self._runs()

    def _moments(self, keeper: Keeper) -> Iterator[int]:
        """The epochs at which the run stops to look, those that are behind it left out."""
        plan, started = self.plan, self.epoch > 0
        every = keeper.checkpoint.every_steps if keeper.checkpoint else None
        stops = {0, plan.epochs, *self.records, *plan.snapshots_at, *range(0, plan.epochs, CHECK_EVERY)}
        stops |= set(range(0, plan.epochs, every)) if every else set()
        return iter(sorted(stop for stop in stops if stop > self.epoch or not started))

    def _note(self) -> None:
        """Give up the networks that diverged, and keep what is to be recorded at this epoch."""
        if len(self.alive) and (self.epoch % CHECK_EVERY == 0 or self.epoch == self.plan.epochs):
            weights = self._weights()
            good = (weights.abs() <= LIMITS.get(weights.dtype, math.inf)).flatten(1).all(1).cpu()
            if not bool(good.all()):
                self.diverged_at[self.alive[~good]] = self.epoch
                self.alive = self.alive[good]
                self._chunk(weights[good])
        if self.epoch in self.records and len(self.alive):
            looks, row = [chunk.look() for chunk in self.chunks], self.records.index(self.epoch)
            for history, column in zip(self.histories.values(), zip(*looks, strict=True), strict=True):
                history[row, self.alive] = torch.cat(column).to(history)
        if self.epoch in self.plan.snapshots_at:
            self.snapshots[self.epoch] = self._parameters()

    def _chunk(self, weights: Tensor) -> None:
        """Go on with these weights of the networks that are left."""
        places = range(0, max(1, len(weights)), self.nets_at_once)
        parts = [slice(start, start + self.nets_at_once) for start in places]
        # Copies, also where nothing moves: they are trained in place.
        own = [weights[part].transpose(0, 1).clone(memory_format=torch.contiguous_format) for part in parts]
        rates = self.rates[self.alive]
        self.chunks = [self.build(mine, rates[part]) for mine, part in zip(own, parts, strict=True)]

    def _weights(self) -> Float[Tensor, "kept matrices width width"]:
        return torch.cat([chunk.weights.transpose(0, 1) for chunk in self.chunks])

    def _parameters(self) -> dict[str, Tensor]:
        """The weights of the networks that are left at the places of all, NaN elsewhere."""
        weights = self._weights()
        spread = weights.new_full((len(self.rates), *weights.shape[1:]), math.nan)
        spread[self.alive] = weights
        return {"weights": spread}

    def _state(self) -> dict[str, Any]:
        return {
            "epoch": self.epoch,
            "alive": self.alive,
            "diverged_at": self.diverged_at,
            "histories": {name: history.cpu() for name, history in self.histories.items()},
            "snapshots": self.snapshots,
            "program": {"weights": self._weights().cpu()},
        }

    def _restore(self, state: dict[str, Any]) -> None:
        self.epoch, self.alive, self.diverged_at = state["epoch"], state["alive"], state["diverged_at"]
        self.histories = {name: state["histories"][name].to(history) for name, history in self.histories.items()}
        device, snapshots = self.rates.device, state["snapshots"].items()
        self.snapshots = {epoch: {"weights": kept["weights"].to(device)} for epoch, kept in snapshots}
        self._chunk(state["program"]["weights"].to(device))

    def _runs(self) -> ManyRuns:
        chosen = torch.tensor([self.records.index(epoch) for epoch in self.plan.record_at], dtype=torch.int64)
        return ManyRuns(
            learning_rates=self.rates,
            losses=self.histories["losses"][-1].nan_to_num(math.inf, math.inf),
            diverged_at=self.diverged_at,
            parameters=self._parameters(),
            epochs=torch.tensor(self.plan.record_at, dtype=torch.int64),
            loss_history=self.histories["losses"][chosen],
            mean_norm_history=self.histories["mean_norms"][chosen],
            gradient_norm_history=self.histories["gradient_norms"][chosen],
            snapshots=self.snapshots,
        )


class _LinearChunk(_Chunk):
    """Linear networks and the instructions of their gradient.

    Units have the maps P_r = [I +] W_n … W_1. Forwards h_r = P_r h_{r-1}; backwards, with q the transposed derivative
    with respect to h, q_{r-1} = q_r P_r. The derivative by P_r is M = (h_{r-1} q_r)ᵀ, and inside a unit that by W_l is
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
        before_and_after = zip(self.matrices[1:], self.products[:-1], self.products[1:], strict=True)
        self.gradient = [product(matrix, before, after) for matrix, before, after in before_and_after]
        if n == 1:
            self.gradient.append(partial(self.maps.copy_, self.matrices[0]))
        if units.shortcut:
            self.gradient.append(partial(self.maps.diagonal(dim1=-2, dim2=-1).add_, 1))
        self.gradient += [*self._recursions(), *self._steps()]

    def losses(self) -> Float[Tensor, " nets"]:
        """L* + ½ tr((W − W*) S_xx (W − W*)ᵀ)."""
        gap = self.forwards[-1] - self.best
        return self.lowest + ((gap @ self.moments.inputs) * gap).sum((1, 2)) / 2

    def _recursions(self) -> list[Instruction]:
        P, h, q, units = self.maps, self.forwards, self.backwards, len(self.maps)
        return [
            partial(h[1].copy_, P[0]),
            *(product(P[r], h[r], h[r + 1]) for r in range(1, units)),
            product(self.moments.inputs.expand_as(h[units]), h[units].mT, q[-1]),  # q = rate (W S_xx − S_yx)ᵀ
            partial(q[-1].sub_, self.moments.cross.T.contiguous()),
            partial(q[-1].mul_, self.rates[:, None, None]),
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


class _RectifiedChunk(_Chunk):
    """Mid-ReLU networks and the instructions of their gradient; samples are columns here."""

    def __init__(self, weights: Tensor, rates: Tensor, data: tuple[Tensor, Tensor], shortcut: bool) -> None:
        super().__init__(weights, rates)
        inputs, self.targets = data
        units, nets, (features, samples) = weights.shape[0] // 2, weights.shape[1], inputs.shape
        self.shortcut, self.samples = shortcut, samples
        self.forwards = weights.new_empty(units + 1, nets, features, samples)
        self.forwards[0] = inputs
        self.hidden = weights.new_empty(units, nets, features, samples)
        W, h, z = self.weights, self.forwards, self.hidden
        for r in range(units):
            self.gradient += [product(W[2 * r], h[r], z[r]), partial(z[r].clamp_min_, 0)]
            self.gradient.append(product(W[2 * r + 1], z[r], h[r + 1]))
            if shortcut:
                self.gradient.append(partial(h[r + 1].add_, h[r]))
        self.gradient += self._backward()

    def losses(self) -> Float[Tensor, " nets"]:
        """‖Y − f(X)‖² / 2m."""
        return (self.forwards[-1] - self.targets).square().sum((1, 2)) / (2 * self.samples)

    def _backward(self) -> list[Instruction]:
        """With g the derivative by h: steps g zᵀ and (gate ∘ W_2ᵀ g) hᵀ, and on to the unit before."""
        W, h, z, steps = self.weights, self.forwards, self.hidden, self.steps
        g, inner, other = (torch.empty_like(h[0]) for _ in range(3))
        found: list[Instruction] = [
            partial(torch.sub, h[-1], self.targets, out=g),
            partial(g.mul_, (self.rates / self.samples)[:, None, None]),
        ]
        for r in range(len(z) - 1, -1, -1):
            found += [
                product(g, z[r].mT, steps[2 * r + 1]),
                product(W[2 * r + 1].mT, g, inner),
                partial(torch.sign, z[r], out=other),  # 1 where the unit is open, 0 where it is shut
                partial(inner.mul_, other),
                product(inner, h[r].mT, steps[2 * r]),
                product(W[2 * r].mT, inner, other),
            ]
            if self.shortcut:
                found.append(partial(g.add_, other))
            else:
                g, other = other, g
        return found[: -2 if self.shortcut else -1]  # nobody asks for the derivative by the inputs


def product(left: Tensor, right: Tensor, out: Tensor) -> Instruction:
    """The instruction ``out = left @ right`` for stacks of small matrices.

    On the processor NumPy does it: its BLAS multiplies stacks of 10×10 matrices twice as fast as `torch.bmm` (110
    against 250 ns a product on one core of an EPYC), and each product has the same bits wherever it lies in the stack.
    """
    if out.device.type == "cpu":
        return partial(np.matmul, left.numpy(), right.numpy(), out.numpy())
    return partial(torch.matmul, left, right, out=out)


def play(instructions: Iterable[Instruction]) -> None:
    """Do the instructions in their order; networks that overflow do so without a word."""
    with np.errstate(all="ignore"):
        for instruction in instructions:
            instruction()
