"""The optimiser that a recipe names."""

from collections.abc import Iterable

from torch import nn, optim

from skiplens.core.errors import InvalidInputError
from skiplens.training.recipe import Recipe


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
    kind = {"adam": optim.Adam, "adamw": optim.AdamW}[recipe.optimiser]
    return kind(trained, lr=rate, weight_decay=decay)
