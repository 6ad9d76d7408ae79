"""What figure 5 says about condition numbers along training."""

import math
from collections.abc import Sequence

import torch

from skiplens.core.axes import Tensor
from skiplens.readings import Measurement
from skiplens.studies.claim import Claim, Judgement
from skiplens.studies.li2016_shortcuts.dynamics.curves_at_losses import at_losses
from skiplens.studies.li2016_shortcuts.dynamics.paper_depth import at_paper_depth
from skiplens.studies.statistics import Band, decide, decide_correction, exactly, over_seeds

LARGE, SMALL = 2.0, 0.4
"""Losses from which the paper's word "large" and the corrected "always" hold."""

END = 0.345
"""The last loss looked at; the lowest loss of a linear network is 0.337."""

LEVEL = math.log10(2)
"""Change of log10 of a condition number that has come to its last value, between the losses 0.4 and 0.345."""

ALIKE = 0.1
"""Between log10 of two condition numbers that are called similar."""


def _log_condition(readings: Sequence[Measurement], family: str, least: float = 0.0) -> Tensor:
    return at_losses(readings, family, "condition_number", least)[1].log10()


def _at(readings: Sequence[Measurement], family: str, quantity: str, loss: float) -> Tensor:
    """A quantity at one loss, (replicates)."""
    losses, found = at_losses(readings, family, quantity)
    return found[:, losses.index(loss)]


def judge_smaller(readings: Sequence[Measurement]) -> Judgement:
    """Every 2-shortcut run against every orthogonal one, and their means from a loss of 0.4 on."""
    two, orthogonal = (_log_condition(readings, family) for family in ("2-shortcut", "orthogonal"))
    worst_pair = (orthogonal[None] - two[:, None]).amin()
    gaps = _log_condition(readings, "orthogonal", SMALL) - _log_condition(readings, "2-shortcut", SMALL)
    return decide_correction(
        (exactly(float(worst_pair)), Band(0.0, math.inf)),
        (over_seeds(gaps.amin(1)), Band(0.0, math.inf)),
        "log10 of the condition number with orthogonal initialisation minus that of 2-shortcut networks. Printed: "
        f"always positive; near the end some runs have it the other way round, by up to {float(-worst_pair):.2f}. "
        f"Right: positive for losses of at least {SMALL:g} (the number: at the worst of these losses).",
    )


def judge_much_smaller(readings: Sequence[Measurement]) -> Judgement:
    """The gap while the loss is large."""
    gaps = _log_condition(readings, "orthogonal", LARGE) - _log_condition(readings, "2-shortcut", LARGE)
    sentence = (
        f"log10 of the ratio of condition numbers, orthogonal over 2-shortcut, smallest for losses from {LARGE:g} on."
    )
    return decide(over_seeds(gaps), Band(1.0, math.inf), sentence)


def judge_xavier(readings: Sequence[Measurement]) -> Judgement:
    """Xavier networks against the largest condition number of 2-shortcut networks at losses they share."""
    losses, xavier = at_losses(readings, "xavier", "condition_number")
    two = _log_condition(readings, "2-shortcut", min(losses)).amax()
    sentence = (
        "log10 of the condition number of Xavier networks, mean over the losses they come to, minus the largest of any "
        f"2-shortcut network at a loss of at least {min(losses):g}."
    )
    return decide(over_seeds(xavier.log10().nanmean(1) - two), Band(0.0, math.inf), sentence)


def judge_end(readings: Sequence[Measurement]) -> Judgement:
    """Whether condition numbers come to a last value."""
    rises = [
        (_at(readings, family, "condition_number", END) / _at(readings, family, "condition_number", SMALL)).log10()
        for family in ("2-shortcut", "orthogonal")
    ]
    rise = over_seeds(torch.stack(rises).mean(0))
    return decide_correction(
        (rise, Band.around(0.0, LEVEL)),
        (rise, Band(LEVEL, math.inf)),
        f"Rise of log10 of the condition number from the loss {SMALL:g} to {END:g}, mean of both kinds of networks. "
        "Printed: it comes to the same value for both. Right: it comes to none; at a minimum only d² eigenvalues are "
        "not zero, whatever the depth.",
    )


def judge_alike(readings: Sequence[Measurement]) -> Judgement:
    """1-shortcut networks against orthogonal ones while the loss is at least 1."""
    losses, one = at_losses(readings, "1-shortcut", "condition_number", 1.0)
    all_losses, orthogonal = at_losses(readings, "orthogonal", "condition_number")
    same = orthogonal[:, [all_losses.index(loss) for loss in losses]]
    sentence = "log10 of the 1-shortcut networks' condition number minus orthogonal ones', worst loss from 1 on."
    return decide(over_seeds(one.log10() - same.log10()[: len(one)]), Band.around(0.0, ALIKE), sentence)


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
        "at least 10 times",
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
