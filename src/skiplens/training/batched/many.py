"""The learning-rate grid of any small model as one program."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call, grad_and_value, stack_module_state, vmap

from skiplens.base.axes import Float, Int
from skiplens.base.errors import InvalidInputError
from skiplens.base.identity import fingerprint
from skiplens.base.memory import REDUCTION, memory_retry
from skiplens.base.progress import Progress, silent
from skiplens.base.randomness import Randomness
from skiplens.graph.batch import Batch
from skiplens.graph.loss import LossFunction
from skiplens.training.batched.plan import BatchedPlan, Look, ManyRuns, Program, Trainer
from skiplens.training.recipe import Recipe, learning_rate
from skiplens.training.source import source_of

_WANTED = {"optimiser": "sgd", "augmentation": "none", "precision": "full", "channels_last": False, "cuda_graph": False}
_VELOCITY = "velocity of "

Stack = dict[str, Tensor]


@dataclass(frozen=True)
class RatesAndSeeds:
    """All learning rates with all seeds: network number rate · seeds + seed."""

    learning_rates: tuple[float, ...]
    seeds: tuple[int, ...]

    def __post_init__(self) -> None:
        """Refuse a grid without networks."""
        if not self.learning_rates or not self.seeds or min(self.learning_rates) <= 0:
            raise InvalidInputError(f"{self} has no networks to train; give learning rates above 0 and seeds.")

    def table(self, by_network: Tensor) -> Tensor:
        """Numbers of the networks as (rates, seeds, …)."""
        return by_network.unflatten(0, (len(self.learning_rates), len(self.seeds)))


def train_many(
    build: Callable[[int], nn.Module],
    grid: RatesAndSeeds,
    data: Any,
    recipe: Recipe,
    plan: BatchedPlan | None = None,
    progress: Progress = silent,
) -> ManyRuns:
    """What becomes of a model for every learning rate and seed, all trained together.

    To rounding, each is what `train` gives for it alone with the same recipe. Networks that diverge are given up and
    cost nothing more.

    Args:
        build: From a seed to the model; all models must be of one architecture.
        grid: Learning rates and seeds.
        data: `(inputs, targets)` or an iterable of such batches; all models see the same batches.
        recipe: Loss, batch size, momentum, schedule and length; its learning rate is not used.
        plan: When to look; its epochs are updates here. By default those of the recipe.
        progress: Told the updates made.

    Examples:
        >>> grid = RatesAndSeeds((0.1, 0.3), seeds=(0, 1))
        >>> data = torch.eye(2), torch.tensor([[1.0, 2.0], [3.0, 4.0]])
        >>> recipe = Recipe(loss="mse", steps=50)
        >>> grid.table(train_many(lambda seed: nn.Linear(2, 2), grid, data, recipe).losses).shape
        torch.Size([2, 2])
    """
    for name, value in _WANTED.items():
        if getattr(recipe, name) != value:
            raise InvalidInputError(
                f"train_many wants {name}={value!r}, the recipe has {getattr(recipe, name)!r}. Change it, or train the "
                "models one by one with `train`."
            )
    models = [_checked(build(seed)) for seed in grid.seeds]
    rates = torch.tensor(grid.learning_rates, dtype=torch.float64).repeat_interleave(len(models))
    rates = rates.to(next(models[0].parameters()).device)
    program = _StackedModels(models * len(grid.learning_rates), rates, data, recipe)
    identity = {
        "recipe": str(recipe),
        "first weights": fingerprint([*program.parameters().items(), ("rates", rates)]),
        "data": program.source.fingerprint(),
    }
    return Trainer(program, rates, plan or BatchedPlan(program.steps)).run(identity, progress)


def _checked(model: nn.Module) -> nn.Module:
    if not any(parameter.requires_grad for parameter in model.parameters()):
        raise InvalidInputError(f"{type(model).__name__} has no parameter to train.")
    own = set()
    for module in model.modules():
        draws = isinstance(module, nn.modules.dropout._DropoutNd) and module.p > 0
        if draws or getattr(module, "track_running_stats", False):
            own.add(type(module).__name__)
    if own:
        raise InvalidInputError(
            f"{', '.join(sorted(own))} of {type(model).__name__} draws at random or keeps running statistics while it "
            "trains, which models trained together cannot. Leave it out (for batch norm: track_running_stats=False), "
            "or train the models one by one with `train`."
        )
    return model.train()


class _StackedModels(Program):
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
        relative = replace(self._recipe, learning_rate=1.0)
        for step, batch in zip(range(start, stop), self.source.batches(start), strict=False):
            gradients, _ = self._gradients(batch)
            factor = learning_rate(relative, step, self.source.steps_per_epoch, self.steps)
            for name, gradient in gradients.items():
                weights = self._trained[name]
                rates = (self._rates * factor).to(weights.dtype).reshape(-1, *[1] * (weights.ndim - 1))
                self._trained[name] = weights - rates * self._direction(name, gradient)

    def look(self, epoch: int) -> Look:
        """With the batch that the next update would take."""
        gradients, losses = self._gradients(next(self.source.batches(epoch)))
        matrices = [tensor.flatten(1).norm(dim=1) for tensor in self._trained.values() if tensor.ndim > 2]
        norms = matrices or [tensor.flatten(1).norm(dim=1) for tensor in self._trained.values()]
        slopes = torch.stack([gradient.flatten(1).norm(dim=1) for gradient in gradients.values()]).norm(dim=0)
        return Look(losses, torch.stack(norms).mean(0), slopes)

    def parameters(self) -> Stack:
        return {name: tensor.clone() for name, tensor in self._trained.items()}

    def state(self) -> Stack:
        velocities = {f"{_VELOCITY}{name}": tensor.clone() for name, tensor in self._velocities.items()}
        return {**self.parameters(), **velocities}

    def restore(self, state: Stack) -> None:
        self._trained, self._velocities = {}, {}
        for name, tensor in state.items():
            group = self._velocities if name.startswith(_VELOCITY) else self._trained
            group[name.removeprefix(_VELOCITY)] = tensor

    def keep(self, nets: Int[Tensor, " kept"]) -> None:
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

        return memory_retry(all_of_them)

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
