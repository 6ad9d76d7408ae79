"""The race: the network as it is and the changed one, trained from the same seeds on the same batches.

Each runs at its best rate. `verify` and `improve` both race so.
"""

import copy
import itertools
import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from skiplens.base.axes import Float
from skiplens.base.preserve_state import without_autocast
from skiplens.base.randomness import own_random_state
from skiplens.base.words import in_words
from skiplens.graph.batch import Batch
from skiplens.graph.loss import Loss
from skiplens.plots.figure import Figure, Mark, Points, Reference, bundle, colour, numbers
from skiplens.readings.reading import Provenance, Reading
from skiplens.trainability.forecast import TrainingLoss, opened
from skiplens.trainability.optimizers import Mover, OptimizerChoice
from skiplens.trainability.pilot import Runner, has_diverged, put_state, state_of
from skiplens.training.source import Source

PIECE = 20  # steps between two looks whether a run has diverged
LEVEL = 0.05  # of the tests
BEYOND = 1e12  # what a diverged run counts as
LAST = 0.1  # share of the steps whose mean loss is the loss at the end
LEARNT = 0.01  # of a guess
CLIPPED = 10.0  # losses above so many guesses are drawn at this height


class RacedRun(Reading, kind="raced_run"):
    """One training to the end: the loss before each step, infinite from where it diverged."""

    losses: Float[Tensor, " steps"]
    cooled: Float[Tensor, " steps"] = field(default_factory=lambda: torch.zeros(0))  # with a rate that falls at the end


@dataclass(frozen=True)
class Race:
    """Both networks trained from the same seeds on the same batches."""

    # losses of the network as it was, (seeds, steps); not finite from where a run diverged
    before: Float[Tensor, "seeds steps"]
    after: Float[Tensor, "seeds steps"]  # losses of the changed one
    rates: tuple[float, float]  # the rate of each
    last: float = LAST  # the share of the steps, at the end, whose mean loss is the loss at the end
    # losses above ten of it count as that: how far a run has diverged says nothing, and would drown the other pairs
    guess: float = BEYOND

    @property
    def ends(self) -> tuple[Float[Tensor, " seeds"], Float[Tensor, " seeds"]]:
        """The loss at the end of each run, infinite where it diverged."""
        return ends_of(self.before, self.last), ends_of(self.after, self.last)

    @property
    def gain(self) -> float:
        """How many times lower the loss of the changed network ends (geometric mean over seeds)."""
        return math.exp(float(np.mean(self._differences())))

    @property
    def p(self) -> float:
        """The probability of such a gain by chance: one-sided paired t-test of the logarithms.

        A hundredth of a guess is added to the losses: where one run has learnt all by heart, how well it has says
        nothing, and would drown the other pairs.
        """
        from scipy import stats  # it takes longer to load than all of Skiplens

        found = self._differences(LEARNT * self.guess if 0 < self.guess < BEYOND else 0.0)
        if np.ptp(found) == 0:
            return 0.0 if found[0] > 0 else 1.0
        return float(stats.ttest_1samp(found, 0.0, alternative="greater").pvalue)

    @property
    def is_proven(self) -> bool:
        """Whether the changed network trains better beyond chance."""
        return self.gain > 1 and self.p < LEVEL

    @property
    def wins(self) -> int:
        """On how many seeds the changed network ends with the lower loss."""
        before, after = self.ends
        return int((after < before).sum())

    @property
    def rank_p(self) -> float:
        """Two-sided Wilcoxon signed-rank test, exact, of the logarithms; it needs six pairs to prove anything."""
        return signed_rank_p(torch.from_numpy(self._differences()))

    def _differences(self, added: float = 0.0) -> np.ndarray:
        ceiling = CLIPPED * self.guess if self.guess > 0 else BEYOND
        before, after = (np.log(np.clip(ends.double().numpy(), 1e-12, ceiling) + added) for ends in self.ends)
        return before - after


def ends_of(losses: Float[Tensor, "seeds steps"], last: float = LAST) -> Float[Tensor, " seeds"]:
    """The mean loss over the last share of the steps of each run; infinite where it diverged."""
    count = max(1, math.ceil(last * losses.shape[1] - 1e-9))  # 0.1 · 70 is above 7 by rounding
    return losses[:, -count:].mean(1).nan_to_num(nan=math.inf, posinf=math.inf)


def signed_rank_p(differences: Float[Tensor, " pairs"]) -> float:
    """Two-sided p-value of the signed-rank test: all 2ⁿ signs of the differences that are not zero are gone through."""
    from scipy import stats  # it takes longer to load than all of Skiplens

    differences = differences[differences != 0]
    if not len(differences):
        return 1.0
    ranks = torch.from_numpy(stats.rankdata(differences.abs().numpy()))
    signs = torch.tensor(list(itertools.product((-1.0, 1.0), repeat=len(ranks))), dtype=ranks.dtype)
    observed = (ranks * differences.sign()).sum().abs()
    return float(((signs @ ranks).abs() >= observed).double().mean())


def run_to_the_end(  # noqa: PLR0913 - what is trained, on what, how and for how long
    model: nn.Module,
    data: Any,
    loss: Loss,
    choice: OptimizerChoice,
    *,
    rate: float,
    steps: int,
    seed: int,
    first: int = 0,
    last: int = 0,
) -> RacedRun:
    """Train a copy of `model` on the batches from number `first` on; the seed names their order and what is drawn.

    The `last` steps are also trained with a rate that falls to zero. A `Source` as `data` keeps its own order.
    """
    device = next(model.parameters()).device
    clock = Provenance.begin({"optimizer": choice.name, "rate": rate, "steps": steps}, seed, device)
    with own_random_state(device), without_autocast(), torch.enable_grad():
        source = data if isinstance(data, Source) else opened(data, steps, seed, device)[0]
        runner = Runner(model, source, TrainingLoss(loss), choice, seed)
        batches = source.batches(first)
        losses = [runner.first_gradient(next(batches))]
        mover = runner.begin(rate)
        _go_on(runner, mover, losses, batches, steps - last)
        cooled, *kept = copy.deepcopy((losses, state_of(runner.model), mover.state())) if last else ([],)
        _go_on(runner, mover, losses, batches, steps)
        if last:
            put_state(runner.model, kept[0])
            mover.restore(kept[1])
            _go_on(runner, mover, cooled, source.batches(first + len(cooled)), steps, last)
    return RacedRun(losses=_curve(losses, steps), cooled=_curve(cooled, steps * (last > 0)), provenance=clock.end())


def _go_on(
    runner: Runner, mover: Mover, losses: list[float], batches: Iterator[Batch], until: int, falling: int = 0
) -> None:
    """Steps until there are so many, or until it diverges; over those that are `falling` the rate falls to zero."""
    rates = [group["lr"] for group in mover.optimizer.param_groups]
    while len(losses) < until and not has_diverged(losses):
        for group, rate in zip(mover.optimizer.param_groups, rates, strict=True):
            group["lr"] = rate * (until - len(losses)) / falling if falling else group["lr"]
        piece = list(itertools.islice(batches, 1 if falling else min(PIECE, until - len(losses))))
        losses += runner.go_on(mover, len(losses), piece)


def _curve(losses: list[float], steps: int) -> Float[Tensor, " steps"]:
    """So many losses, infinite from where they diverge."""
    kept = torch.full((steps,), math.inf, dtype=torch.float64)
    finite = list(itertools.takewhile(lambda value: not has_diverged([losses[0], value]), losses))
    kept[: len(finite)] = torch.tensor(finite, dtype=torch.float64)
    return kept


def race_figure(race: Race, *, name: str = "race_curves", guess: float = math.nan, loss: str = "") -> Figure:
    """The loss along training of both networks over all seeds; where runs diverged they are counted and marked."""
    sides = [losses.nan_to_num(nan=math.inf, posinf=math.inf) for losses in (race.before, race.after)]
    highest = max((float(losses[losses.isfinite()].max()) for losses in sides if losses.isfinite().any()), default=1.0)
    top = CLIPPED * guess if guess > 0 else highest
    marks: list[Mark] = []
    for index, (side, losses, rate) in enumerate(zip(("as it is", "changed"), sides, race.rates, strict=True)):
        until = int(losses.isfinite().any(0).sum()) + 1  # where the last run diverges the curve ends
        steps = torch.arange(1, losses.shape[1] + 1)[:until]
        diverged = ~losses.isfinite().all(1)
        beyond = ", above the drawing" if bool((ends_of(losses[~diverged]) > top).any()) else ""
        shown, label = losses[:, :until].clamp(max=top), f"{side} (rate {in_words(rate, 2)}){beyond}"
        marks += bundle(steps, shown, label, index, logarithmic=True)
        if bool(diverged.any()):
            ends = losses[diverged].isfinite().sum(1)
            label = f"✕ {side}: diverged on {int(diverged.sum())} of {len(losses)} seeds"
            heights = numbers(torch.full((len(ends),), top))
            marks.append(Points(numbers(ends + 1), heights, label, colour=colour(index), crossed=True))
    if guess > 0:
        marks.append(Reference(guess, "a guess"))
    ending = " The drawing ends at ten guesses." * any(bool((losses > top).any()) for losses in sides)
    return Figure(
        name=name,
        title="Both networks, trained to the end",
        caption=f"Mean loss over {len(race.before)} seeds and, shaded, the range between them. Both see the same "
        f"batches in the same order, each at a rate that was chosen for it.{ending}",
        x_label="step",
        y_label=f"training loss ({loss})" if loss else "training loss",
        y_log=True,
        marks=tuple(marks),
    )
