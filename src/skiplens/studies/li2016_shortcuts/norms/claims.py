"""What figure 3 says about norms and depth."""

import math
from collections.abc import Sequence
from functools import partial

import torch

from skiplens.core.axes import Float, Tensor
from skiplens.readings import Measurement
from skiplens.studies.claim import Claim, Judgement
from skiplens.studies.li2016_shortcuts.norms.settings import CLAIM_EPOCHS
from skiplens.studies.selection import chosen, values
from skiplens.studies.statistics import Band, decide, over_seeds, slope

EXPONENT = Band(-0.5, -0.3)
"""Of the final norm in the depth; theorem 1's network has -1/2."""


def norms_at(
    readings: Sequence[Measurement], activation: str, epochs: Sequence[int]
) -> tuple[list[int], Float[Tensor, "networks depths epochs"]]:
    """The depths, and the mean norm of every network after each number of epochs."""
    depths = values(readings, "depth", activation=activation)
    columns = []
    for depth in depths:
        (reading,) = chosen(readings, activation=activation, depth=depth)
        known = reading["epoch"].tolist()
        columns.append(reading["norm"][[known.index(epoch) for epoch in epochs]].T)
    return depths, torch.stack(columns, dim=1)


def judge_decrease(readings: Sequence[Measurement], activation: str) -> Judgement:
    """Whether norms fall with depth at every epoch looked at."""
    found = _exponents(readings, activation, CLAIM_EPOCHS)
    epochs = ", ".join(map(str, CLAIM_EPOCHS))
    sentence = f"Exponent of the mean Frobenius norm in the depth, the largest after {epochs} epochs."
    return decide(over_seeds(found), Band(-math.inf, 0.0), sentence)


def judge_end(readings: Sequence[Measurement], activation: str) -> Judgement:
    """How fast the final norms fall with depth."""
    found = _exponents(readings, activation, CLAIM_EPOCHS[-1:])
    sentence = (
        f"Exponent of the mean Frobenius norm in the depth after {CLAIM_EPOCHS[-1]} epochs. We ask for an exponent "
        f"from {EXPONENT.low:g} to {EXPONENT.high:g}; theorem 1's limit is -1/2."
    )
    return decide(over_seeds(found), EXPONENT, sentence)


def _exponents(readings: Sequence[Measurement], activation: str, epochs: Sequence[int]) -> Tensor:
    """Of the norm in the depth, for each network of the same number and each epoch."""
    depths, norms = norms_at(readings, activation, epochs)
    return slope([math.log(depth) for depth in depths], norms.log().transpose(1, 2))


CLAIMS = tuple(
    claim
    for activation, panel, word in (("identity", "left", "linear"), ("relu", "right", "ReLU"))
    for claim in (
        Claim(
            f"{word.lower()}_decrease",
            f"The deeper a 2-shortcut network is, the smaller are its norms during training ({word}).",
            f"Figure 3 {panel}",
            "exponent < 0",
            partial(judge_decrease, activation=activation),
        ),
        Claim(
            f"{word.lower()}_end",
            f"When the training ends, deeper networks are nearer to zero, as theorem 1 allows ({word}).",
            f"Figure 3 {panel}, Section 4.1",
            "falls with depth: exponent < 0",
            partial(judge_end, activation=activation),
        ),
    )
)
