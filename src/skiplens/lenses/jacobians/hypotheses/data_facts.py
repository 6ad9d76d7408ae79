"""The training data of a model as the theory's data matrix."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from skiplens.data.batch import Batch, as_batches, concatenate
from skiplens.theory.hypotheses import DataFacts

MOST_NUMBERS = 20_000_000
MOST_RANK = 1500
"""Singular values of larger data matrices would take minutes; then only the counts are told."""


@dataclass(frozen=True)
class TrainingData:
    """What the checker needs of the data: a few samples to call the model with, all targets, and the facts."""

    first: Batch
    targets: Tensor
    facts: DataFacts
    whole: Batch | None
    """All samples, where they are few enough to be kept."""


def training_data(data: Any) -> TrainingData:
    """All batches, gone through once; they are kept only as long as they are few."""
    first, kept, targets, samples = None, list[Batch](), list[Tensor](), 0
    for batch in as_batches(data):
        first = batch if first is None else first
        samples += batch.samples
        targets.append(batch.targets)
        kept = [*kept, batch] if samples * _features(first) <= MOST_NUMBERS else []
    assert first is not None, "as_batches refuses data without batches"
    whole = concatenate(kept) if kept and sum(batch.samples for batch in kept) == samples else None
    return TrainingData(first, torch.cat(targets), _facts(first, whole, samples), whole)


def _facts(first: Batch, whole: Batch | None, samples: int) -> DataFacts:
    features = _features(first)
    matrix = None if whole is None else _matrix(whole)
    if matrix is None or min(samples, features) > MOST_RANK:
        return DataFacts(samples, features)
    return DataFacts.of_matrix(matrix)


def _matrix(batch: Batch) -> Tensor | None:
    """Features × samples in float64, where the input is one floating tensor."""
    tensors = _tensors(batch.inputs)
    if len(tensors) != 1 or not tensors[0].is_floating_point():
        return None
    return tensors[0].detach().flatten(1).T.to("cpu", torch.float64)


def _features(batch: Batch) -> int:
    return sum(tensor[0].numel() for tensor in _tensors(batch.inputs) if tensor.ndim and len(tensor))


def _tensors(inputs: Any) -> list[Tensor]:
    if isinstance(inputs, Tensor):
        return [inputs]
    values: Iterable[Any] = inputs.values() if isinstance(inputs, dict) else inputs
    return [value for value in values if isinstance(value, Tensor)]
