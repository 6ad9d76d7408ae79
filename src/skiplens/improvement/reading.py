"""What an improvement tried, what it found, and the race that proves it."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from skiplens.base.axes import Float, Int
from skiplens.improvement.race import Race
from skiplens.readings.reading import Reading


@dataclass(frozen=True, kw_only=True, eq=False)
class Improvement(Reading, kind="improvement"):
    """The search for a better network.

    Attributes:
        changes: What was changed, in order of effect; empty where nothing was proven better.
        reasons: What calls for each.
        gains: By how much each alone lowers the logarithm of the loss at the end of a pilot.
        code: Code to paste that makes the changes.
        tried: What was tried, by the names of the changes.
        scores: The logarithm of the loss at the end of the pilot of each, in units of a guess.
        costs: Gradients spent on each.
        left_out: What was not tried, and why.
        seemed_better: What was raced; '' where nothing was.
        losses_before: Losses of the network as it was in the race, (seeds, steps); infinite after a divergence.
        losses_after: Losses of the changed network.
        rates: The rate of each in the race.
        gain: How many times lower the loss ends.
        p: The probability of such a gain by chance.
        is_proven: Whether the changed network is better beyond chance.
        guess: The loss of the best constant answer.
        cost: Gradients computed in all.
        steps: Length of the trainings of the race.
        optimizer: What moves the parameters.
    """

    changes: tuple[str, ...]
    reasons: tuple[str, ...]
    gains: Float[Tensor, " changes"]
    code: str
    tried: tuple[str, ...]
    scores: Float[Tensor, " tried"]
    costs: Int[Tensor, " tried"]
    left_out: Mapping[str, Any]
    seemed_better: str
    losses_before: Float[Tensor, "seeds steps"]
    losses_after: Float[Tensor, "seeds steps"]
    rates: tuple[float, float]
    gain: float
    p: float
    is_proven: bool
    guess: float
    cost: int
    steps: int
    optimizer: str

    @property
    def sentence(self) -> str:
        """What was found, in one sentence."""
        count = len({name for name in self.tried if name != "as it is"})
        race = self.race
        if not self.seemed_better or race is None:
            limited = " keep='outputs' allows only another training: keep='architecture' would try other starts too."
            return (
                f"This network trains as well as anything tried: none of {count} changes promises a lower loss."
                + limited * (self.provenance.settings.get("keep") == "outputs")
            )
        raced = f"over {len(race.before)} pairs of trainings"
        if not self.is_proven:
            return (
                f"Not proven: {self.seemed_better} ended with {1 / self.gain:.2g} times the loss {raced} "
                f"(p = {self.p:.2g}), so the network stays as it is."
            )
        what = " and ".join(self.changes)
        chance = f"p = {self.p:.2g}" if self.p > 0 else "nothing is drawn, so all are alike"
        before, after = (float(ends.median()) for ends in race.ends)
        instead = (
            f"at {after:.3g} instead of {before:.3g}" if math.isfinite(before) else f"at {after:.3g}, not diverging"
        )
        return f"{what[:1].upper()}{what[1:]}: the loss ends {instead} {raced} ({chance})."

    @property
    def race(self) -> Race | None:
        """Both networks trained to the end; None where nothing was raced."""
        return Race(self.losses_before, self.losses_after, self.rates) if self.losses_before.numel() else None

    def rows(self) -> tuple[Mapping[str, Any], ...]:
        """What was tried as a table, best first."""
        found = sorted(zip(self.scores.tolist(), self.tried, self.costs.tolist(), strict=True))
        return tuple(
            {"change": name, "loss of its pilot": f"{self.guess * math.exp(min(score, 50.0)):.3g}", "gradients": cost}
            for score, name, cost in found
        )
