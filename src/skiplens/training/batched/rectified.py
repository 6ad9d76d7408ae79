"""Many networks with ReLUs inside their units, trained on samples."""

from functools import partial

import torch

from skiplens.core.axes import Float, Tensor
from skiplens.core.errors import InvalidInputError
from skiplens.core.fingerprint import fingerprint
from skiplens.core.progress import Progress, silent
from skiplens.training.batched.chains import Chains, Chunk, check_starts
from skiplens.training.batched.drive import Drive
from skiplens.training.batched.plan import ManyRuns, Plan
from skiplens.training.batched.tape import Instruction, product

Samples = tuple[Float[Tensor, "samples width"], Float[Tensor, "samples width"]]


def train_rectified_networks(
    starts: Float[Tensor, "nets matrices width width"],
    learning_rates: Float[Tensor, " nets"],
    data: Samples,
    plan: Plan,
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
    rates, columns = learning_rates.to(starts), (inputs.T.to(starts).contiguous(), targets.T.to(starts).contiguous())
    build = partial(RectifiedChunk, data=columns, shortcut=shortcut)
    activations = starts.shape[1] * inputs.numel() * starts.element_size()
    program = Chains(starts, rates, build, bytes_of_a_net=activations)
    identity = {
        "networks": "rectified shortcut" if shortcut else "rectified plain",
        "first weights": fingerprint([("starts", starts), ("rates", rates)]),
        "data": fingerprint([("inputs", columns[0]), ("targets", columns[1])]),
    }
    return Drive(program, rates, plan).run(identity, progress)


class RectifiedChunk(Chunk):
    """Mid-ReLU networks and the instructions of their gradient; samples are columns here."""

    def __init__(self, weights: Tensor, rates: Tensor, data: tuple[Tensor, Tensor], shortcut: bool) -> None:
        super().__init__(weights, rates)
        inputs, self.targets = data
        units, nets, (features, samples) = weights.shape[0] // 2, weights.shape[1], inputs.shape
        self.shortcut, self.samples = shortcut, samples
        self.forwards = weights.new_empty(units + 1, nets, features, samples)
        self.forwards[0] = inputs
        self.hidden = weights.new_empty(units, nets, features, samples)
        self.gradient = [*self._forward(), *self._backward()]

    def losses(self) -> Float[Tensor, " nets"]:
        """‖Y − f(X)‖² / 2m."""
        return (self.forwards[-1] - self.targets).square().sum((1, 2)) / (2 * self.samples)

    def _forward(self) -> list[Instruction]:
        W, h, z = self.weights, self.forwards, self.hidden
        found: list[Instruction] = []
        for r in range(len(z)):
            found += [
                product(W[2 * r], h[r], z[r]),
                partial(z[r].clamp_min_, 0),
                product(W[2 * r + 1], z[r], h[r + 1]),
            ]
            if self.shortcut:
                found.append(partial(h[r + 1].add_, h[r]))
        return found

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
