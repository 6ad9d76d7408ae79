"""What figure 5 says about condition numbers along training."""

import math
from collections.abc import Sequence

import torch

from skiplens.core.axes import Tensor
from skiplens.readings import Measurement
from skiplens.studies.claim import Claim, Judgement
from skiplens.studies.li2016_shortcuts.dynamics.curves_at_losses import arrived, at_losses, by_loss, over_losses
from skiplens.studies.li2016_shortcuts.dynamics.paper_depth import at_paper_depth
from skiplens.studies.statistics import Band, decide, decide_correction, exactly, over_seeds

LARGE, SMALL = 2.0, 0.4
"""Losses from which the paper's word "large" and the corrected "always" hold."""

NEARLY, END = 0.45, 0.345
"""A loss not far from the end, and the last loss looked at; the lowest loss of a linear network is 0.337."""

LEVEL = math.log10(2)
"""Change of log10 of a condition number that has come to its last value, between these losses."""

ALIKE = 0.1
"""Between log10 of two condition numbers that are called similar."""


def log_gaps(
    readings: Sequence[Measurement], least: float = 0.0, families: tuple[str, str] = ("orthogonal", "2-shortcut")
) -> dict[float, Tensor]:
    """log10 of the condition number of one family minus that of the other at each loss they share, run by run."""
    first, second = (by_loss(readings, family, "condition_number") for family in families)
    shared = [loss for loss in first if loss in second and loss >= least]
    return {loss: first[loss].log10() - second[loss].log10() for loss in shared}


def judge_smaller(readings: Sequence[Measurement]) -> Judgement:
    """Every 2-shortcut run against every orthogonal one, and their means from a loss of 0.4 on."""
    two, orthogonal = (by_loss(readings, family, "condition_number") for family in ("2-shortcut", "orthogonal"))
    worst = min(float((orthogonal[loss].amin() / two[loss].amax()).log10()) for loss in two)
    return decide_correction(
        (exactly(worst), Band(0.0, math.inf)),
        (over_losses(log_gaps(readings, SMALL)), Band(0.0, math.inf)),
        "log10 of the condition number with orthogonal initialisation minus that of 2-shortcut networks. Printed: "
        f"always positive; near the end some runs have it the other way round, by up to {-worst:.2f}. Right: positive "
        f"in the mean for losses of at least {SMALL:g} (the number: at the worst of these losses).",
    )


def judge_much_smaller(readings: Sequence[Measurement]) -> Judgement:
    """The gap while the loss is large."""
    sentence = (
        "log10 of the ratio of condition numbers, orthogonal over 2-shortcut, smallest for losses from 2 on. We ask "
        "for at least 10 times."
    )
    return decide(over_losses(log_gaps(readings, LARGE)), Band(1.0, math.inf), sentence)


def judge_xavier(readings: Sequence[Measurement]) -> Judgement:
    """Xavier networks against the largest condition number of 2-shortcut networks at losses they share."""
    losses, xavier = at_losses(readings, "xavier", "condition_number")
    two = by_loss(readings, "2-shortcut", "condition_number")
    largest = max(float(found.amax()) for loss, found in two.items() if loss >= min(losses))
    sentence = (
        "log10 of the condition number of Xavier networks, mean over the losses they come to, minus the largest of any "
        f"2-shortcut network at a loss of at least {min(losses):g}."
    )
    gaps = xavier.log10().nanmean(1) - math.log10(largest)
    return decide(over_seeds(arrived(gaps)), Band(0.0, math.inf), sentence)


def judge_end(readings: Sequence[Measurement]) -> Judgement:
    """Whether condition numbers come to a last value."""
    rises = []
    for family in ("2-shortcut", "orthogonal"):
        found = by_loss(readings, family, "condition_number")
        rises.append((found[END] / found[NEARLY]).log10())
    rise = over_seeds(arrived(torch.stack(rises).mean(0)))
    return decide_correction(
        (rise, Band.around(0.0, LEVEL)),
        (rise, Band(LEVEL, math.inf)),
        f"Rise of log10 of the condition number from the loss {NEARLY:g} to {END:g}, mean of both kinds of networks. "
        "Printed: it comes to the same value for both. Right: it comes to none; at a minimum only d² eigenvalues are "
        "not zero, whatever the depth.",
    )


def judge_alike(readings: Sequence[Measurement]) -> Judgement:
    """1-shortcut networks against orthogonal ones while the loss is at least 1."""
    gaps = log_gaps(readings, 1.0, ("1-shortcut", "orthogonal"))
    sentence = "log10 of the 1-shortcut networks' condition number minus orthogonal ones', worst loss from 1 on."
    return decide(over_losses(gaps), Band.around(0.0, ALIKE), sentence)


CLAIMS = (
    Claim(
        "always_smaller",
        "The condition numbers of 2-shortcut networks at different losses are always smaller.",
        "Figure 5, Section 5.2",
        "> 0 at every loss",
        at_paper_depth(judge_smaller),
    ),
    Claim(
        "much_smaller_when_large",
        "They are smaller especially when the loss is large.",
        "Figure 5, Section 5.2",
        "log10 ratio > 0; we ask for ≥ 1",
        at_paper_depth(judge_much_smaller),
    ),
    Claim(
        "smaller_than_xavier",
        "They are smaller than those of networks with Xavier initialisation.",
        "Figure 5",
        "> 0",
        at_paper_depth(judge_xavier),
    ),
    Claim(
        "same_value_at_the_end",
        "The condition numbers roughly evolve to the same value for orthogonal and 2-shortcut networks.",
        "Figure 5, Section 5.2",
        "a last value",
        at_paper_depth(judge_end),
    ),
    Claim(
        "one_shortcut_like_orthogonal",
        "The training dynamics of 1-shortcut networks are similar to those with orthogonal initialisation.",
        "Section 5",
        "difference 0",
        at_paper_depth(judge_alike),
    ),
)
