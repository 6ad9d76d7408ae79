"""Forward and backward pass as one CUDA graph: a step of many small kernels costs one launch."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor

from skiplens.core.errors import InvalidInputError
from skiplens.data.batch import Batch
from skiplens.derivatives.outputs import tensors_in
from skiplens.training.passes import EagerPasses, Passes
from skiplens.training.snapshot import Snapshot

_WARM_UPS = 3
"""Passes before the recording: libraries choose their algorithms and allocate their workspaces in the first ones."""


class GraphedPasses(Passes):
    """Replays forward and backward as they were recorded for the first batch; a batch of another shape goes eagerly.

    The first batch of a run has the full size, so only the short one at the end of an epoch goes eagerly. The update
    stays outside the graph: its learning rate changes.
    """

    def __init__(self, eager: EagerPasses) -> None:
        if eager.device.type != "cuda":
            raise InvalidInputError(
                f"cuda_graph wants a model on a GPU, this one is on the {eager.device.type}. Move it with "
                "model.cuda(), or leave cuda_graph out."
            )
        self.eager = eager
        self._batch: Batch | None = None
        self._replayed = False

    def forward(self, batch: Batch) -> Tensor:
        """The loss; its gradients are computed at once where the graph is replayed."""
        if self._batch is None:
            self._record(batch)
        assert self._batch is not None, "recorded just now"
        self._take_gradients()
        self._replayed = _shapes(batch) == _shapes(self._batch)
        if not self._replayed:
            self.eager.optimiser.zero_grad(set_to_none=False)
            return self.eager.loss_of(self.eager.laid_out(batch))
        for held, came in zip(_tensors(self._batch), _tensors(batch), strict=True):
            held.copy_(came)
        self._graph.replay()
        return self._loss.clone()

    def backward(self, loss: Tensor) -> None:
        """The gradients, which a replay has left already; free of the loss's scale."""
        if self._replayed:
            self.eager.scaler.unscale_(self.eager.optimiser)
        else:
            self.eager.backward(loss)

    def update(self) -> None:
        """The optimiser's step."""
        self.eager.update()

    def state(self) -> dict[str, Any]:
        """The scale of the loss; the graph is recorded anew."""
        return self.eager.state()

    def restore(self, state: dict[str, Any]) -> None:
        """Take up the scale."""
        self.eager.restore(state)

    def _record(self, batch: Batch) -> None:
        """Record both passes; weights, buffers and random state are as before."""
        model, device = self.eager.model, self.eager.device
        self._batch = self.eager.laid_out(batch).map(torch.clone)
        with torch.random.fork_rng([device]), _quickest_algorithms():
            before = Snapshot.of(model)
            _on_a_side_stream(self._both, _WARM_UPS)
            before.put_into_(model)
            for parameter in model.parameters():
                parameter.grad = None  # so that the recording allocates those that a replay writes
            self._graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(self._graph):
                self._loss = self._both()
        self._gradients = [parameter.grad for parameter in model.parameters()]

    def _both(self) -> Tensor:
        assert self._batch is not None, "there before the first pass"
        for parameter in self.eager.model.parameters():
            parameter.grad = None
        loss = self.eager.loss_of(self._batch)
        self.eager.scaler.scale(loss).backward()
        return loss.detach()  # its history would keep nodes of the side stream alive

    def _take_gradients(self) -> None:
        """Point the parameters to the memory that a replay writes: a measurement may have put copies in its place."""
        for parameter, gradient in zip(self.eager.model.parameters(), self._gradients, strict=True):
            parameter.grad = gradient


def _on_a_side_stream(function: Any, times: int) -> None:
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(times):
            function()
    torch.cuda.current_stream().wait_stream(stream)


@contextmanager
def _quickest_algorithms() -> Iterator[None]:
    """Let cuDNN try its algorithms, which pays where the same shapes come thousands of times."""
    before = torch.backends.cudnn.benchmark
    torch.backends.cudnn.benchmark = True
    try:
        yield
    finally:
        torch.backends.cudnn.benchmark = before


def _tensors(batch: Batch) -> list[Tensor]:
    return [*tensors_in(batch.inputs), batch.targets]


def _shapes(batch: Batch) -> list[tuple[int, ...]]:
    return [tuple(tensor.shape) for tensor in _tensors(batch)]
