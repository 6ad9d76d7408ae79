"""The loss at points of a slice, several points at once on a CPU.

Each worker thread has a model of its own and one thread inside torch: points side by side use cores better than
threads inside small operations do, and the numbers do not depend on the number of workers. (Points batched with `vmap`
took as much CPU time as one by one for a multilayer perceptron, and twice as much for a convolutional network.)
"""

import copy
import queue
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import contextmanager
from dataclasses import dataclass, replace

import torch
from torch import nn

from skiplens.core.axes import Float, Tensor
from skiplens.data.batch import Batch
from skiplens.derivatives.hessian.flat import FlatOrder
from skiplens.derivatives.hessian.problem import LossProblem

Point = tuple[float, ...]


@dataclass(frozen=True)
class SliceLoss:
    """The loss of a model moved along directions."""

    problem: LossProblem
    directions: tuple[dict[str, Tensor], ...]
    pieces: Sequence[Batch]

    @classmethod
    def of(
        cls, problem: LossProblem, order: FlatOrder, vectors: Float[Tensor, "params directions"], size: int
    ) -> "SliceLoss":
        """The loss along the columns of `vectors`, looked at with at most `size` samples at once."""
        directions = tuple(order.unflatten(vector) for vector in vectors.T.contiguous())
        return cls(problem, directions, list(problem.pieces(size)))

    def at(self, point: Point, model: nn.Module) -> float:
        """The loss at the weights plus `point` times the directions; NaN or infinite where it is."""
        objective = replace(self.problem.objective, pure=replace(self.problem.objective.pure, model=model))
        with torch.no_grad():
            leaves = self._moved(point)
            totals = [objective.rule.total(objective.outputs(leaves, piece), piece.targets) for piece in self.pieces]
            return sum(float(total) for total in totals) / self.problem.divisor

    def _moved(self, point: Point) -> list[Tensor]:
        moved = []
        for name, weight in self.problem.objective.pure.parameters.items():
            for coordinate, direction in zip(point, self.directions, strict=True):
                weight = weight + coordinate * direction[name]
            moved.append(weight)
        return moved


def evaluated_rows(
    slice_loss: SliceLoss, rows: Mapping[int, Sequence[Point]], workers: int
) -> Iterator[tuple[int, list[float]]]:
    """The losses of each row of points as it is finished, in any order."""
    model = slice_loss.problem.objective.pure.model
    models = queue.SimpleQueue[nn.Module]()
    for twin in (model, *(copy.deepcopy(model) for _ in range(workers - 1))):
        models.put(twin)

    def row_of_losses(number: int) -> tuple[int, list[float]]:
        own = models.get()
        try:
            return number, [slice_loss.at(point, own) for point in rows[number]]
        finally:
            models.put(own)

    with _one_thread_each(slice_loss.problem.objective.device), ThreadPoolExecutor(workers) as pool:
        waiting = [pool.submit(row_of_losses, number) for number in rows]
        try:
            yield from (done.result() for done in as_completed(waiting))
        finally:
            pool.shutdown(cancel_futures=True)


def chosen_workers(asked: int, rows: int, device: torch.device) -> int:
    """How many workers there are: one on a GPU, which is busy with one point; never more than rows."""
    if device.type != "cpu":
        return 1
    return max(1, min(asked or torch.get_num_threads(), rows))


@contextmanager
def _one_thread_each(device: torch.device) -> Iterator[None]:
    before = torch.get_num_threads()
    try:
        if device.type == "cpu":
            torch.set_num_threads(1)
        yield
    finally:
        torch.set_num_threads(before)
