"""How a network is trained, in one frozen object that names the run."""

import math
from collections.abc import Iterable
from typing import Literal

from torch import nn, optim

from skiplens.base import InvalidInputError, Settings, SettingsError, option


class Recipe(Settings):
    """Everything that decides the numbers of a training run besides the model and the data.

    Examples:
        >>> Recipe(learning_rate=0.05, batch_size=64, epochs=3).difference()
        {'learning_rate': 0.05, 'batch_size': 64, 'epochs': 3}
    """

    optimiser: Literal["sgd", "adam", "adamw"] = option("sgd", "rule that turns gradients into steps")
    learning_rate: float = option(0.1, "size of a step before the schedule")
    momentum: float = option(0.0, "momentum of sgd, at least 0 and below 1")
    nesterov: bool = option(False, "whether the momentum of sgd looks ahead")
    weight_decay: float = option(0.0, "decay of the weights: in the gradient for sgd and adam, decoupled for adamw")
    batch_size: int | None = option(None, "samples of a step; none: all of them")
    epochs: int = option(10, "passes through the data")
    steps: int | None = option(None, "steps in place of epochs; none: as many as the epochs have")
    schedule: Literal["constant", "cosine"] = option("constant", "learning rate over the run; cosine ends at zero")
    milestones: tuple[int, ...] = option((), "epochs after which the learning rate is multiplied by milestone_factor")
    milestone_factor: float = option(0.1, "what each milestone multiplies the learning rate by")
    warmup_epochs: int = option(0, "epochs in which the learning rate rises linearly to its value")
    loss: str = option("cross_entropy", "name of a loss, 'model' where the model returns it, or file.py:function")
    augmentation: Literal["none", "flip", "crop_flip", "resized_crop_flip"] = option(
        "none", "random changes of images at each step"
    )
    precision: Literal["full", "bfloat16", "float16"] = option("full", "half a word: mixed precision, weights in full")
    seed: int = option(0, "seed of the order of samples and of all that is drawn while training")
    channels_last: bool = option(False, "images and kernels with channels innermost, as tensor cores read them")
    cuda_graph: bool = option(False, "replay forward and backward as one CUDA graph; a GPU is needed")

    def __post_init__(self) -> None:
        """Refuse values with which no run is possible."""
        super().__post_init__()
        self._require(math.isfinite(self.learning_rate) and self.learning_rate > 0, "learning_rate", "a number above 0")
        self._require(0 <= self.momentum < 1, "momentum", "at least 0 and below 1")
        self._require(math.isfinite(self.weight_decay) and self.weight_decay >= 0, "weight_decay", "at least 0")
        self._require(self.batch_size is None or self.batch_size >= 1, "batch_size", "at least 1, or none for all")
        self._require(self.epochs >= 1, "epochs", "at least 1")
        self._require(self.steps is None or self.steps >= 1, "steps", "at least 1, or none to count epochs")
        self._require(self.warmup_epochs >= 0, "warmup_epochs", "at least 0")
        self._require(self.milestone_factor > 0, "milestone_factor", "a number above 0")
        ascending = all(early < late for early, late in zip((0, *self.milestones), self.milestones, strict=False))
        self._require(ascending, "milestones", "epochs from 1 on in ascending order")
        sgd = self.optimiser == "sgd"
        self._require(sgd or not self.momentum, "momentum", f"0 for {self.optimiser}: it has a momentum of its own")
        self._require(not self.nesterov or self.momentum > 0, "nesterov", "false where momentum is 0")

    def _require(self, good: bool, name: str, wanted: str) -> None:
        if not good:
            raise SettingsError(f"Recipe.{name} is {getattr(self, name)!r}; wanted {wanted}.")


def build_optimiser(parameters: Iterable[nn.Parameter], recipe: Recipe) -> optim.Optimizer:
    """The torch optimiser of `recipe` for all parameters that require a gradient."""
    trained = [parameter for parameter in parameters if parameter.requires_grad]
    if not trained:
        raise InvalidInputError(
            "No parameter of the model requires a gradient, so there is nothing to train; "
            "call requires_grad_() on those that should change."
        )
    rate, decay = recipe.learning_rate, recipe.weight_decay
    if recipe.optimiser == "sgd":
        momentum, nesterov = recipe.momentum, recipe.nesterov
        return optim.SGD(trained, lr=rate, momentum=momentum, nesterov=nesterov, weight_decay=decay)
    return {"adam": optim.Adam, "adamw": optim.AdamW}[recipe.optimiser](trained, lr=rate, weight_decay=decay)


def learning_rate(recipe: Recipe, step: int, steps_per_epoch: int, steps: int) -> float:
    """The learning rate of the update that follows `step` updates in a run of `steps`."""
    passed = sum(step >= milestone * steps_per_epoch for milestone in recipe.milestones)
    rate = recipe.learning_rate * recipe.milestone_factor**passed
    if recipe.schedule == "cosine":
        rate *= (1 + math.cos(math.pi * step / steps)) / 2
    warmup_steps = recipe.warmup_epochs * steps_per_epoch
    # it rises by equal amounts and is whole at the last step of the warm-up
    return rate * (min(1.0, (step + 1) / warmup_steps) if warmup_steps else 1.0)
