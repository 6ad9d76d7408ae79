"""How a loss adds up over samples, found out by evaluating it on a few of them."""

from typing import Any

import torch
from torch.utils._pytree import tree_map_only

from skiplens.core.axes import Tensor
from skiplens.data.batch import Batch, concatenate
from skiplens.derivatives.hessian.losses import Combination
from skiplens.derivatives.hessian.objective import Objective, require_scalar


def found_combination(objective: Objective, batch: Batch, model_returns_loss: bool) -> Combination:
    """Whether the loss of some samples is the mean or the sum of their losses, or neither ("whole").

    Where the model itself returns the loss, the same samples twice must give the same loss or twice as much.
    """
    with torch.no_grad():
        if model_returns_loss:
            return _of_repeated(objective, batch.first(4))
        return _of_parts(objective, objective.outputs(objective.leaves(), batch), batch)


def _of_repeated(objective: Objective, few: Batch) -> Combination:
    once, twice = (_loss(objective, batch) for batch in (few, concatenate([few, few])))
    return _matching(twice, mean=once, total=2 * once)


def _loss(objective: Objective, batch: Batch) -> float:
    outputs = objective.outputs(objective.leaves(), batch)
    return require_scalar(objective.rule.plain(outputs, batch.targets)).item()


def _of_parts(objective: Objective, outputs: Any, batch: Batch) -> Combination:
    """Compare the loss of all samples with those of the first one and of the rest; one sample is taken three times."""
    index = list(range(batch.samples)) if batch.samples > 1 else [0, 0, 0]
    whole, first, rest = (_loss_at(objective, outputs, batch, part) for part in (index, index[:1], index[1:]))
    n = len(index)
    return _matching(whole, mean=(first + (n - 1) * rest) / n, total=first + rest)


def _loss_at(objective: Objective, outputs: Any, batch: Batch, index: list[int]) -> float:
    chosen = tree_map_only(Tensor, lambda tensor: _rows(tensor, index, batch.samples), outputs)
    return require_scalar(objective.rule.plain(chosen, batch.targets[index])).item()


def _rows(tensor: Tensor, index: list[int], samples: int) -> Tensor:
    return tensor[index] if tensor.ndim and tensor.shape[0] == samples else tensor


def _matching(value: float, mean: float, total: float) -> Combination:
    """A loss of zero is both; then it is taken for a mean, as most are."""
    tolerance = 1e-4 * abs(value)
    if abs(value - mean) <= tolerance:
        return "mean"
    return "sum" if abs(value - total) <= tolerance else "whole"
