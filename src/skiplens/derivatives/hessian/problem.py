"""A loss over data, checked once: it repeats, it is finite, and it is known how its mini-batches add up."""

from collections.abc import Iterator
from dataclasses import dataclass, replace

import torch

from skiplens.core.errors import InvalidInputError
from skiplens.core.progress import Progress
from skiplens.data.batch import Batch, Batches
from skiplens.derivatives.functional import is_batch_coupled
from skiplens.derivatives.hessian.combination import found_combination
from skiplens.derivatives.hessian.objective import Objective
from skiplens.derivatives.hessian.repeats import repeats_in_order


@dataclass(frozen=True)
class LossProblem:
    """An objective and its data, with what one pass over them tells."""

    objective: Objective
    batches: Batches
    samples: int
    sizes: tuple[int, ...]
    loss: float
    divisor: float
    ordered: bool
    """Whether a second pass gave the same batches in the same order."""
    splits: bool
    """Whether a batch may be cut: its samples do not depend on each other, neither in the model nor in the loss."""

    def first(self) -> Batch:
        """The first batch."""
        return self.objective.prepared(next(iter(self.batches)))

    def pieces(self, size: int) -> Iterator[Batch]:
        """The batches, cut into pieces of equal length of at most `size` samples."""
        for batch in self.batches:
            yield from _cut(self.objective.prepared(batch), size if self.splits else None)

    def piece_sizes(self, size: int) -> list[int]:
        """The samples of each piece."""
        return [piece for count in self.sizes for piece in _cut_sizes(count, size if self.splits else None)]


def pose(objective: Objective, batches: Batches, progress: Progress, model_returns_loss: bool) -> LossProblem:
    """The problem, after two passes over the data that must give the same loss."""
    first = objective.prepared(next(iter(batches)))
    rule = objective.rule
    if rule.combination == "unknown":
        rule = rule.combined_by(found_combination(objective, first, model_returns_loss))
        objective = replace(objective, rule=rule)
    totals, shares, sizes = _evaluated(objective, batches, progress)
    if rule.combination == "whole" and len(sizes) > 1:
        raise InvalidInputError(
            f"The loss is neither a mean nor a sum over samples, so those of {len(sizes)} batches do not add up to "
            "one. Hand over all data as one batch, or a loss that is a mean or a sum over samples."
        )
    ordered = repeats_in_order(objective, batches, totals)
    divisor = sum(shares) or 1.0
    splits = not model_returns_loss and rule.combination != "whole" and not _coupled(objective, first)
    return LossProblem(
        objective, batches, sum(sizes), tuple(sizes), sum(totals) / divisor, divisor, ordered=ordered, splits=splits
    )


def _evaluated(
    objective: Objective, batches: Batches, progress: Progress
) -> tuple[list[float], list[float], list[int]]:
    totals, shares, sizes = [], [], []
    leaves = objective.leaves()
    with torch.no_grad():
        for number, batch in enumerate(batches, start=1):
            batch = objective.prepared(batch)
            totals.append(objective.total(objective.outputs(leaves, batch), batch).item())
            shares.append(objective.rule.share(batch.targets))
            sizes.append(batch.samples)
            progress("loss of the data", number, number)
    return totals, shares, sizes


def _coupled(objective: Objective, batch: Batch) -> bool:
    try:
        return is_batch_coupled(objective.pure, batch.inputs)
    except (RuntimeError, TypeError, ValueError, IndexError):
        return True  # it does not take a few samples alone, so its batches cannot be cut


def _cut(batch: Batch, size: int | None) -> Iterator[Batch]:
    start = 0
    for count in _cut_sizes(batch.samples, size):
        yield batch if count == batch.samples else batch.select(slice(start, start + count))
        start += count


def _cut_sizes(samples: int, size: int | None) -> list[int]:
    pieces = 1 if size is None else -(-samples // max(1, size))
    return [samples // pieces + (i < samples % pieces) for i in range(pieces)]
