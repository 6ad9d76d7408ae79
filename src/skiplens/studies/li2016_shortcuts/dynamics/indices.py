"""What figure 6 says about the index, the share of negative eigenvalues, along training."""

import math
from collections.abc import Sequence

import torch

from skiplens.core.axes import Float, Tensor
from skiplens.readings import Measurement
from skiplens.studies.claim import Claim, Judgement
from skiplens.studies.li2016_shortcuts.digits import WIDTH
from skiplens.studies.li2016_shortcuts.dynamics.curves_at_losses import by_loss, over_losses
from skiplens.studies.li2016_shortcuts.dynamics.paper_depth import at_paper_depth
from skiplens.studies.selection import stacked, values
from skiplens.studies.statistics import Band, decide, over_seeds

LEAST = 0.4
"""The smallest loss at which indices are compared: below it eigenvalues near zero have no sure sign."""

DROP = WIDTH * (WIDTH + 1) // 2
"""Negative eigenvalues that a 2-shortcut network loses at the beginning."""

DROP_LOSS = 1.5
"""Where they are gone."""

DROP_TOLERANCE = 1.6
"""In eigenvalues: 0.001 of the index of a network with 16 matrices."""

BEGUN, ENDED = 0.8, 48.0
"""Eigenvalues lost when the drop has begun (index 0.4995 at 16 matrices) and when it has nearly ended (0.47)."""


def lost(readings: Sequence[Measurement], index: Tensor) -> Tensor:
    """How many negative eigenvalues fewer than half of all there are."""
    params = values(readings, "depth")[0] * WIDTH**2
    return (0.5 - index) * params


def judge_smaller(readings: Sequence[Measurement]) -> Judgement:
    """2-shortcut networks against orthogonal ones at every loss."""
    two, orthogonal = (by_loss(readings, family, "index") for family in ("2-shortcut", "orthogonal"))
    gaps = {loss: orthogonal[loss] - two[loss] for loss in two if loss >= LEAST}
    sentence = (
        "Index with orthogonal initialisation minus that of 2-shortcut networks; smallest over losses of at least "
        f"{LEAST:g}."
    )
    return decide(over_losses(gaps), Band(0.0, math.inf), sentence)


def judge_drop(readings: Sequence[Measurement]) -> Judgement:
    """How many negative eigenvalues are gone at a loss of 1.5."""
    found = lost(readings, by_loss(readings, "2-shortcut", "index")[DROP_LOSS])
    share = 0.5 - DROP / (values(readings, "depth")[0] * WIDTH**2)
    sentence = (
        f"Negative eigenvalues lost from the start to a loss of {DROP_LOSS}; d(d + 1)/2 = {DROP} make the index fall "
        f"from 0.5 to {share:.4f}."
    )
    return decide(over_seeds(found), Band.around(float(DROP), DROP_TOLERANCE), sentence)


def judge_peak(readings: Sequence[Measurement]) -> Judgement:
    """When the gradient is largest, between beginning and end of the drop."""
    sentence = (
        "Epoch of the largest gradient, as a share of the way from the epoch at which the index begins to drop to the "
        "one at which it has dropped."
    )
    return decide(over_seeds(peak_places(readings)), Band(0.0, 1.0), sentence)


def peak_places(readings: Sequence[Measurement]) -> Float[Tensor, " replicates"]:
    """The peak of the gradient of each run: 0 is the beginning of the drop, 1 its end."""
    epochs = stacked(readings, "epoch", "descent").double()
    gone = lost(readings, stacked(readings, "index", "descent"))
    peak = stacked(readings, "gradient_norm", "descent").argmax(1)
    begun, ended = (_first(gone > count) for count in (BEGUN, ENDED))
    at = [epochs.gather(1, place[:, None])[:, 0] for place in (begun, peak, ended)]
    return (at[1] - at[0]) / (at[2] - at[0])


def _first(reached: Tensor) -> Tensor:
    """The first place of each row that is true; the last one if none is."""
    places = torch.arange(reached.shape[1]).expand(reached.shape)
    return torch.where(reached, places, reached.shape[1] - 1).amin(1)


CLAIMS = (
    Claim(
        "smaller",
        "The index of a 2-shortcut network is always smaller.",
        "Figure 6 left",
        "> 0 at every loss",
        at_paper_depth(judge_smaller),
    ),
    Claim(
        "drop",
        "It drops dramatically at the beginning.",
        "Figure 6 left",
        "a sudden drop",
        at_paper_depth(judge_drop),
    ),
    Claim(
        "gradient",
        "The gradient reaches its maximum while the index drops.",
        "Figure 6 right",
        "between 0 and 1",
        at_paper_depth(judge_peak),
    ),
)
