"""Two passes over the same data must give the same loss: a matrix that changes between products has no spectrum."""

import torch
from torch import nn

from skiplens.core.errors import InvalidInputError, SkiplensError
from skiplens.data.batch import Batch, Batches
from skiplens.derivatives.hessian.objective import Objective


def repeats_in_order(objective: Objective, batches: Batches, totals: list[float]) -> bool:
    """Whether a second pass gives the batches in the same order; refused where their sum differs from that of `totals`.

    A loader that only shuffles is fine where samples do not depend on each other: the sum is the same.
    """
    again = [_total(objective, objective.prepared(batch)) for batch in batches]
    if _same(sum(again), sum(totals), objective.dtype, sum(abs(total) for total in totals)):
        pairs = zip(again, totals, strict=False)
        return len(again) == len(totals) and all(_same(*pair, objective.dtype, abs(pair[0])) for pair in pairs)
    batch = objective.prepared(next(iter(batches)))
    first, second = _total(objective, batch), _total(objective, batch)
    if not _same(first, second, objective.dtype, abs(first)):
        raise SkiplensError(
            f"Two calls of the model with the same batch give different losses ({first:.6g} and {second:.6g}): "
            f"{_reason(objective.pure.model)} at each call. Call model.eval() first, or set the dropout probability "
            "to 0."
        )
    raise InvalidInputError(
        f"Two passes over data give different losses ({_mean(totals):.6g} and {_mean(again):.6g} a batch of "
        f"{len(totals)} and {len(again)}), though the model repeats itself: the loader gives other samples each time, "
        "e.g. by random augmentation or by shuffling. Pass the batches of one pass, list(loader), or switch that off."
    )


def _total(objective: Objective, batch: Batch) -> float:
    with torch.no_grad():
        return objective.total(objective.outputs(objective.leaves(), batch), batch).item()


def _same(left: float, right: float, dtype: torch.dtype, scale: float) -> bool:
    return abs(left - right) <= torch.finfo(dtype).eps ** 0.75 * scale


def _reason(model: nn.Module) -> str:
    drawing = sorted({type(m).__name__ for m in model.modules() if m.training and "drop" in type(m).__name__.lower()})
    return f"{' and '.join(drawing)} in training mode draws anew" if drawing else "its forward pass draws or counts"


def _mean(totals: list[float]) -> float:
    return sum(totals) / max(1, len(totals))
