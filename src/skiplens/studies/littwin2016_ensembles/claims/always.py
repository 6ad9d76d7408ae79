"""Statements that hold always, or do not."""

from collections.abc import Sequence

import torch

from skiplens.core.axes import Tensor
from skiplens.studies.claim import Judgement
from skiplens.studies.statistics import UNDECIDED, Band, decide, over_seeds

FEWEST = 5
"""Replicates below which agreement decides nothing: shares that are all equal have an interval without width."""


def judge_always(shares: Sequence[Tensor] | Tensor, explanation: str) -> Judgement:
    """Reproduced if the share of cases in which a statement holds is 1 in each of at least five replicates."""
    stacked = torch.stack(list(shares))
    if len(stacked) < FEWEST:
        return Judgement("not attempted", float(stacked.mean()), explanation=f"{explanation} {UNDECIDED}")
    return decide(over_seeds(stacked), Band.around(1.0, 0.0), explanation)
