"""The weights and gradients of a model at one moment of a run."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn


class Snapshot:
    """Copies of all parameters, their gradients and all buffers, on the model's device."""

    def __init__(self, tensors: dict[str, Tensor], gradients: dict[str, Tensor]) -> None:
        self.tensors, self.gradients = tensors, gradients

    @classmethod
    def of(cls, model: nn.Module) -> "Snapshot":
        """The model as it is now."""
        tensors = {name: tensor.detach().clone() for name, tensor in _tensors(model)}
        named = ((name, parameter.grad) for name, parameter in model.named_parameters())
        return cls(tensors, {name: gradient.clone() for name, gradient in named if gradient is not None})

    def put_into_(self, model: nn.Module) -> None:
        """Give the model the values of this moment."""
        with torch.no_grad():
            for name, tensor in _tensors(model):
                tensor.copy_(self.tensors[name])
            for name, parameter in model.named_parameters():
                gradient = self.gradients.get(name)
                parameter.grad = None if gradient is None else gradient.to(parameter.device, copy=True)

    @contextmanager
    def held_by(self, model: nn.Module) -> Iterator[nn.Module]:
        """Run a block in which the model is as it was, then give it back its present values, bit for bit."""
        present = Snapshot.of(model)
        try:
            self.put_into_(model)
            yield model
        finally:
            present.put_into_(model)

    def state(self) -> dict[str, Any]:
        """The copies in a form that a checkpoint keeps."""
        return {"tensors": self.tensors, "gradients": self.gradients}

    @classmethod
    def restored(cls, state: dict[str, Any]) -> "Snapshot":
        """The snapshot that `state` gave."""
        return cls(state["tensors"], state["gradients"])


def _tensors(model: nn.Module) -> list[tuple[str, Tensor]]:
    return [*model.named_parameters(), *model.named_buffers()]
