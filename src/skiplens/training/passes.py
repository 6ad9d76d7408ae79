"""The passes through a model that make a step: forward, backward, update; in full or mixed precision."""

from abc import ABC, abstractmethod
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from torch import Tensor, nn, optim

from skiplens.data.batch import Batch
from skiplens.training.losses import LossFunction
from skiplens.training.recipe import Recipe

_MIXED = {"bfloat16": torch.bfloat16, "float16": torch.float16}


class Passes(ABC):
    """Forward, backward and update of one step, called in this order."""

    @abstractmethod
    def forward(self, batch: Batch) -> Tensor:
        """The loss of a batch."""

    @abstractmethod
    def backward(self, loss: Tensor) -> None:
        """Put the gradients of the loss that `forward` gave into the parameters."""

    @abstractmethod
    def update(self) -> None:
        """Make the optimiser's step."""

    @abstractmethod
    def state(self) -> dict[str, Any]:
        """What a checkpoint keeps."""

    @abstractmethod
    def restore(self, state: dict[str, Any]) -> None:
        """Take up what `state` gave."""


class EagerPasses(Passes):
    """One operation after the other.

    In float16 small gradients would vanish: the loss is multiplied by a scale before the backward pass and the
    gradients are divided by it afterwards; a step whose gradients overflow is left out and the scale is halved.
    """

    def __init__(self, model: nn.Module, loss: LossFunction, optimiser: optim.Optimizer, recipe: Recipe) -> None:
        self.model, self.loss, self.optimiser = model, loss, optimiser
        self.device = next(model.parameters()).device
        self.mixed = _MIXED.get(recipe.precision)
        self.channels_last = recipe.channels_last
        self.scaler = torch.amp.GradScaler(self.device.type, enabled=recipe.precision == "float16")
        if recipe.channels_last:
            model.to(memory_format=torch.channels_last)  # type: ignore[call-overload]  # missing in torch's stubs

    def forward(self, batch: Batch) -> Tensor:
        """The loss, with its graph."""
        self.optimiser.zero_grad()
        return self.loss_of(self.laid_out(batch))

    def backward(self, loss: Tensor) -> None:
        """Gradients of the loss, free of its scale."""
        self.scaler.scale(loss).backward()
        self.scaler.unscale_(self.optimiser)

    def update(self) -> None:
        """The optimiser's step, unless scaled gradients overflowed."""
        self.scaler.step(self.optimiser)
        self.scaler.update()

    def state(self) -> dict[str, Any]:
        """The scale of the loss; empty unless there is one."""
        return self.scaler.state_dict()

    def restore(self, state: dict[str, Any]) -> None:
        """Take up the scale."""
        if state:
            self.scaler.load_state_dict(state)

    def loss_of(self, batch: Batch) -> Tensor:
        """The loss in the recipe's precision."""
        with self._precision():
            return self.loss(self.model, batch)

    def laid_out(self, batch: Batch) -> Batch:
        """The batch with its images in the layout of the weights."""
        return batch.map_inputs(_channels_last) if self.channels_last else batch

    def _precision(self) -> AbstractContextManager[Any]:
        return nullcontext() if self.mixed is None else torch.autocast(self.device.type, dtype=self.mixed)


def _channels_last(tensor: Tensor) -> Tensor:
    return tensor.contiguous(memory_format=torch.channels_last) if tensor.ndim == 4 else tensor
