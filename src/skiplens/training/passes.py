"""The passes through a model that make a step: forward, backward, update; in full or mixed precision."""

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn, optim

from skiplens.base.errors import InvalidInputError
from skiplens.graph.batch import Batch
from skiplens.graph.loss import LossFunction
from skiplens.training.checkpoints import restore_weights_, state_tensors
from skiplens.training.recipe import Recipe
from skiplens.training.source import batch_tensors

_MIXED = {"bfloat16": torch.bfloat16, "float16": torch.float16}
WARM_UPS = 3  # passes before the recording: in the first ones libraries choose algorithms and allocate workspaces


class EagerPasses:
    """Forward, backward and update of one step, called in this order: one operation after the other.

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
        """The loss of a batch, with its graph."""
        self.optimiser.zero_grad()
        return self.loss_of(self.laid_out(batch))

    def backward(self, loss: Tensor) -> None:
        """Put the gradients of the loss that `forward` gave, free of its scale, into the parameters."""
        self._differentiate(loss)
        self.scaler.unscale_(self.optimiser)

    def _differentiate(self, loss: Tensor) -> None:
        moved = [parameter for parameter in self.model.parameters() if parameter.requires_grad]
        self.scaler.scale(loss).backward(inputs=moved)  # a loss may hold parameters of the user's own

    def update(self) -> None:
        """The optimiser's step, unless scaled gradients overflowed."""
        self.scaler.step(self.optimiser)
        self.scaler.update()

    def state(self) -> dict[str, Any]:
        """What a checkpoint keeps: the scale of the loss; empty unless there is one."""
        return self.scaler.state_dict()

    def restore(self, state: dict[str, Any]) -> None:
        """Take up the scale."""
        if state:
            self.scaler.load_state_dict(state)

    def loss_of(self, batch: Batch) -> Tensor:
        """The loss in the recipe's precision."""
        with nullcontext() if self.mixed is None else torch.autocast(self.device.type, dtype=self.mixed):
            return self.loss(self.model, batch)

    def laid_out(self, batch: Batch) -> Batch:
        """The batch with its images in the layout of the weights."""
        return batch.map_inputs(_channels_last) if self.channels_last else batch


def _channels_last(tensor: Tensor) -> Tensor:
    return tensor.contiguous(memory_format=torch.channels_last) if tensor.ndim == 4 else tensor


class GraphedPasses(EagerPasses):
    """Replays forward and backward as they were recorded for the first batch; a batch of another shape goes eagerly.

    The first batch of a run has the full size, so only the short one at the end of an epoch goes eagerly. The update
    stays outside the graph: its learning rate changes.
    """

    def __init__(self, model: nn.Module, loss: LossFunction, optimiser: optim.Optimizer, recipe: Recipe) -> None:
        super().__init__(model, loss, optimiser, recipe)
        if self.device.type != "cuda":
            raise InvalidInputError(
                f"cuda_graph wants a model on a GPU, this one is on the {self.device.type}. Move it with "
                "model.cuda(), or leave cuda_graph out."
            )
        self._batch: Batch | None = None
        self._replayed = False

    def forward(self, batch: Batch) -> Tensor:
        """The loss; its gradients are computed at once where the graph is replayed."""
        if self._batch is None:
            self._record(batch)
        assert self._batch is not None, "recorded just now"
        # point the parameters to the memory that a replay writes: a measurement may have put copies in its place
        for parameter, gradient in zip(self.model.parameters(), self._gradients, strict=True):
            parameter.grad = gradient
        self._replayed = _shapes(batch) == _shapes(self._batch)
        if not self._replayed:
            self.optimiser.zero_grad(set_to_none=False)
            return self.loss_of(self.laid_out(batch))
        for held, came in zip(batch_tensors(self._batch), batch_tensors(batch), strict=True):
            held.copy_(came)
        self._graph.replay()
        return self._loss.clone()

    def backward(self, loss: Tensor) -> None:
        """The gradients, which a replay has left already; free of the loss's scale."""
        if self._replayed:
            self.scaler.unscale_(self.optimiser)
        else:
            super().backward(loss)

    def _record(self, batch: Batch) -> None:
        """Record both passes; weights, buffers and random state are as before."""
        self._batch = self.laid_out(batch).map(torch.clone)
        with torch.random.fork_rng([self.device]), quickest_algorithms():
            before, stream = Snapshot.of(self.model), torch.cuda.Stream()
            stream.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(stream):
                for _ in range(WARM_UPS):
                    self._both()
            torch.cuda.current_stream().wait_stream(stream)
            before.put_into_(self.model)
            self.model.zero_grad()  # to None, so that the recording allocates the gradients that a replay writes
            self._graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(self._graph):
                self._loss = self._both()
        self._gradients = [parameter.grad for parameter in self.model.parameters()]

    def _both(self) -> Tensor:
        assert self._batch is not None, "there before the first pass"
        self.model.zero_grad()
        loss = self.loss_of(self._batch)
        self._differentiate(loss)
        return loss.detach()  # its history would keep nodes of the side stream alive


@contextmanager
def quickest_algorithms() -> Iterator[None]:
    """Let cuDNN try its algorithms, which pays where the same shapes come thousands of times."""
    before = torch.backends.cudnn.benchmark
    torch.backends.cudnn.benchmark = True
    try:
        yield
    finally:
        torch.backends.cudnn.benchmark = before


def _shapes(batch: Batch) -> list[tuple[int, ...]]:
    return [tuple(tensor.shape) for tensor in batch_tensors(batch)]


@dataclass(frozen=True, eq=False)
class Snapshot:
    """Copies of all parameters, their gradients and all buffers, on the model's device; a checkpoint keeps both."""

    tensors: dict[str, Tensor]
    gradients: dict[str, Tensor]

    @classmethod
    def of(cls, model: nn.Module) -> "Snapshot":
        """The model as it is now."""
        tensors = {name: tensor.detach().clone() for name, tensor in state_tensors(model)}
        named = ((name, parameter.grad) for name, parameter in model.named_parameters())
        return cls(tensors, {name: gradient.clone() for name, gradient in named if gradient is not None})

    def put_into_(self, model: nn.Module) -> None:
        """Give the model the values of this moment."""
        restore_weights_(model, self.tensors)
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
