"""Any models of one architecture side by side: their parameters in stacks, their gradients by vmap."""

from dataclasses import replace
from typing import Any

import torch
from torch import nn
from torch.func import functional_call, grad_and_value, stack_module_state, vmap

from skiplens.core.axes import Float, Int, Tensor
from skiplens.core.memory import REDUCTION
from skiplens.core.randomness import Randomness
from skiplens.core.shortage import halving_memory
from skiplens.data.batch import Batch
from skiplens.training.batched.plan import Look
from skiplens.training.batched.program import Program
from skiplens.training.losses import LossFunction
from skiplens.training.recipe import Recipe
from skiplens.training.schedule import learning_rate
from skiplens.training.source import source_of

_VELOCITY = "velocity of "
Stack = dict[str, Tensor]


class StackedModels(Program):
    """Models of one architecture, each with a learning rate of its own, trained by SGD as a recipe says."""

    def __init__(self, models: list[nn.Module], rates: Float[Tensor, " nets"], data: Any, recipe: Recipe) -> None:
        self._model, self._rates, self._recipe = models[0], rates, recipe
        stacked, self._buffers = stack_module_state(models)
        trained = {name for name, parameter in models[0].named_parameters() if parameter.requires_grad}
        self._trained = {name: tensor.detach() for name, tensor in stacked.items() if name in trained}
        self._fixed = {name: tensor.detach() for name, tensor in stacked.items() if name not in trained}
        self._velocities: Stack = {}
        self._loss = LossFunction(recipe.loss)
        device = next(iter(stacked.values())).device
        self.source = source_of(data, recipe.batch_size, Randomness(recipe.seed).child("training"), device)
        self.steps = recipe.steps or recipe.epochs * self.source.steps_per_epoch

    def advance(self, start: int, stop: int) -> None:
        """The batch of a step is the same for all models, and the one that `train` takes."""
        for step, batch in zip(range(start, stop), self.source.batches(start), strict=False):
            gradients, _ = self._gradients(batch)
            factor = learning_rate(
                replace(self._recipe, learning_rate=1.0), step, self.source.steps_per_epoch, self.steps
            )
            for name, gradient in gradients.items():
                weights = self._trained[name]
                self._trained[name] = weights - _along(self._rates * factor, weights) * self._direction(name, gradient)

    def look(self, epoch: int) -> Look:
        """With the batch that the next update would take."""
        gradients, losses = self._gradients(next(self.source.batches(epoch)))
        matrices = [tensor.flatten(1).norm(dim=1) for tensor in self._trained.values() if tensor.ndim > 2]
        norms = matrices or [tensor.flatten(1).norm(dim=1) for tensor in self._trained.values()]
        slopes = torch.stack([gradient.flatten(1).norm(dim=1) for gradient in gradients.values()]).norm(dim=0)
        return Look(losses, torch.stack(norms).mean(0), slopes)

    def parameters(self) -> Stack:
        """What is trained."""
        return {name: tensor.clone() for name, tensor in self._trained.items()}

    def state(self) -> Stack:
        """The parameters and, with momentum, their velocities."""
        velocities = {f"{_VELOCITY}{name}": tensor.clone() for name, tensor in self._velocities.items()}
        return {**self.parameters(), **velocities}

    def restore(self, state: Stack) -> None:
        """Go on with other parameters and velocities."""
        self._trained = {name: tensor for name, tensor in state.items() if not name.startswith(_VELOCITY)}
        self._velocities = {
            name.removeprefix(_VELOCITY): tensor for name, tensor in state.items() if name.startswith(_VELOCITY)
        }

    def keep(self, nets: Int[Tensor, " kept"]) -> None:
        """Some of every stack."""
        nets = nets.to(self._rates.device)
        self._rates = self._rates[nets]
        for stack in (self._trained, self._fixed, self._buffers, self._velocities):
            stack.update({name: tensor[nets] for name, tensor in stack.items()})

    def _gradients(self, batch: Batch) -> tuple[Stack, Float[Tensor, " nets"]]:
        """Gradients and losses of all models, as many at once as memory holds."""

        def loss(trained: Stack, fixed: Stack, buffers: Stack) -> Tensor:
            arguments = batch.arguments()
            state = {**trained, **fixed, **buffers}
            outputs = functional_call(self._model, state, arguments.positional, arguments.named)
            return self._loss.rule.plain(outputs, batch.targets)

        def all_of_them() -> tuple[Stack, Tensor]:
            at_once = max(1, int(len(self._rates) * REDUCTION.get()))
            return vmap(grad_and_value(loss), chunk_size=at_once)(self._trained, self._fixed, self._buffers)

        return halving_memory(all_of_them)

    def _direction(self, name: str, gradient: Tensor) -> Tensor:
        """Where SGD goes: the gradient with weight decay, gathered by momentum."""
        decay, momentum = self._recipe.weight_decay, self._recipe.momentum
        if decay:
            gradient = gradient + decay * self._trained[name]
        if not momentum:
            return gradient
        before = self._velocities.get(name)
        velocity = gradient if before is None else momentum * before + gradient
        self._velocities[name] = velocity
        return gradient + momentum * velocity if self._recipe.nesterov else velocity


def _along(rates: Tensor, stack: Tensor) -> Tensor:
    """One number for each network, as a factor of its entry of the stack."""
    return rates.to(stack.dtype).reshape(-1, *[1] * (stack.ndim - 1))
