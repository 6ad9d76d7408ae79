"""The learning-rate grid of any small model as one program."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from skiplens.core.axes import Tensor
from skiplens.core.errors import InvalidInputError
from skiplens.core.fingerprint import fingerprint
from skiplens.core.progress import Progress, silent
from skiplens.training.batched.drive import Drive
from skiplens.training.batched.plan import ManyRuns, Plan
from skiplens.training.batched.stacked import StackedModels
from skiplens.training.recipe import Recipe


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
    plan: Plan | None = None,
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
    _require_plain_sgd(recipe)
    models = [_checked(build(seed)) for seed in grid.seeds]
    rates = torch.tensor(grid.learning_rates, dtype=torch.float64).repeat_interleave(len(models))
    rates = rates.to(next(models[0].parameters()).device)
    program = StackedModels(models * len(grid.learning_rates), rates, data, recipe)
    identity = {
        "recipe": str(recipe),
        "first weights": fingerprint([*program.parameters().items(), ("rates", rates)]),
        "data": program.source.fingerprint(),
    }
    return Drive(program, rates, plan or Plan(program.steps)).run(identity, progress)


def _require_plain_sgd(recipe: Recipe) -> None:
    wanted = {
        "optimiser": "sgd",
        "augmentation": "none",
        "precision": "full",
        "channels_last": False,
        "cuda_graph": False,
    }
    for name, value in wanted.items():
        if getattr(recipe, name) != value:
            raise InvalidInputError(
                f"train_many wants {name}={value!r}, the recipe has {getattr(recipe, name)!r}. Change it, or train the "
                "models one by one with `train`."
            )


def _checked(model: nn.Module) -> nn.Module:
    if not any(parameter.requires_grad for parameter in model.parameters()):
        raise InvalidInputError(f"{type(model).__name__} has no parameter to train.")
    own = sorted(set(_with_a_will_of_their_own(model.modules())))
    if own:
        raise InvalidInputError(
            f"{', '.join(own)} of {type(model).__name__} draws at random or keeps running statistics while it trains, "
            "which models trained together cannot. Leave it out (for batch norm: track_running_stats=False), or train "
            "the models one by one with `train`."
        )
    return model.train()


def _with_a_will_of_their_own(modules: Iterable[nn.Module]) -> Iterable[str]:
    for module in modules:
        draws = isinstance(module, nn.modules.dropout._DropoutNd) and module.p > 0
        if draws or getattr(module, "track_running_stats", False):
            yield type(module).__name__
