"""What an improvement tried, what it found, and the race that proves it."""

import math
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from skiplens.base.axes import Float, Int
from skiplens.base.words import in_words
from skiplens.improvement.race import Race
from skiplens.readings.reading import Reading

COLUMNS = ("change", "loss of its pilot", "gradients")


class Improvement(Reading, kind="improvement"):
    """The search for a better network."""

    changes: tuple[str, ...]  # what was changed, in order of effect; empty where nothing was proven better
    reasons: tuple[str, ...]  # what calls for each
    gains: Float[Tensor, " changes"]  # by how much each lowers the logarithm of the loss at the end of a pilot
    code: str  # code to paste that makes the changes
    tried: tuple[str, ...]  # what was tried, by the names of the changes
    scores: Float[Tensor, " tried"]  # the logarithm of the loss at the end of the pilot of each, in units of a guess
    costs: Int[Tensor, " tried"]  # gradients spent on each
    left_out: Mapping[str, Any]  # what was not tried, or not taken in the end, and why
    seemed_better: str  # what was raced; '' where nothing was
    # losses of the network as it was in the race, (seeds, steps); infinite after a divergence
    losses_before: Float[Tensor, "seeds steps"]
    losses_after: Float[Tensor, "seeds steps"]  # losses of the changed network
    rates: tuple[float, float]  # the rate of each in the race
    gain: float  # how many times lower the loss ends
    p: float  # the probability of such a gain by chance; of two tests in a row the larger one
    is_proven: bool  # whether the changed network is better beyond chance
    guess: float  # the loss of the best constant answer; NaN where it is not known
    cost: int  # gradients computed in all
    steps: int  # length of the trainings of the race
    optimizer: str  # what moves the parameters
    unit: float = math.nan  # the loss at the start, which scores are in units of where there is no guess
    # the network before and, where it was changed, after it, as data; empty where it was not looked at
    drawings: tuple[Mapping[str, Any], ...] = ()

    @property
    def sentence(self) -> str:
        """What was found, in one sentence."""
        count = len({name for name in self.tried if name != "as it is"})
        race = self.race
        if not self.seemed_better or race is None:
            limited = " keep='outputs' allows only another training: keep='architecture' would try other starts too."
            limited *= self.provenance.settings.get("keep") == "outputs"
            tried = f"none of {count} changes promises a" if count != 1 else "the one change that was tried promises no"
            return f"This network trains as well as anything tried: {tried} lower loss.{limited}"
        raced = f"{len(race.before)} pairs of trainings"
        if not self.is_proven:
            name = self.seemed_better.replace("_", " ")
            return (
                f"Not proven: {name} ended with {in_words(1 / self.gain, 2)} times the loss over {raced} "
                f"(p = {in_words(self.p, 2)}), so the network stays as it is."
            )
        what = " and ".join(filter(None, (", ".join(self.changes[:-1]), self.changes[-1])))
        chance = f"p = {in_words(self.p, 2)}" if self.p > 0 else "nothing is drawn, so all are alike"
        ends = [float(ends.median()) for ends in race.ends]
        before, after = map(in_words, ends)
        instead = (
            f"at {after} instead of {before}" if math.isfinite(ends[0]) else f"at {after} and does not diverge any more"
        )
        return f"The loss ends {instead}: {what} ({raced}, {chance})."

    @property
    def shares(self) -> tuple[float, ...]:
        """Of what all changes bring in pilots, the part of each."""
        gains = self.gains.clamp_min(0)
        return tuple((gains / gains.sum().clamp_min(torch.finfo(gains.dtype).tiny)).tolist())

    @property
    def race(self) -> Race | None:
        """Both networks trained to the end; None where nothing was raced."""
        return Race(self.losses_before, self.losses_after, self.rates) if self.losses_before.numel() else None

    def rows(self) -> tuple[Mapping[str, Any], ...]:
        """What was tried as a table, best first, then what was not."""
        found = sorted(zip(self.scores.tolist(), self.tried, self.costs.tolist(), strict=True))
        words = [name.replace("_", " ") for _, name, _ in found]
        unit = self.guess if self.guess > 0 else self.unit
        losses = [in_words(unit * math.exp(min(score, 50.0))) for score, *_ in found]
        tried = list(zip(words, losses, (str(cost) for *_, cost in found), strict=True))
        left_out = [(name, f"left out: {reason}", "") for name, reason in self.left_out.items()]
        return tuple(dict(zip(COLUMNS, row, strict=True)) for row in (*tried, *left_out))
