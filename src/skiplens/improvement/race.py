"""The proof: the network as it is and the changed one, trained to the end from fresh seeds, each at its best rate."""

import itertools
import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from skiplens.base.axes import Float
from skiplens.base.preserve_state import without_autocast
from skiplens.base.randomness import own_random_state
from skiplens.graph.loss import Loss
from skiplens.improvement.reading import ends_of
from skiplens.readings.reading import Provenance, Reading
from skiplens.trainability.forecast import TrainingLoss, opened
from skiplens.trainability.optimizers import OptimizerChoice
from skiplens.trainability.pilot import Runner, has_diverged

PIECE = 20  # steps between two looks whether a run has diverged
LEVEL = 0.05  # of the test
BEYOND = 1e12  # what a diverged run counts as


@dataclass(frozen=True, kw_only=True, eq=False)
class RacedRun(Reading, kind="raced_run"):
    """One training to the end: the loss before each step, infinite from where it diverged."""

    losses: Float[Tensor, " steps"]


@dataclass(frozen=True)
class Race:
    """Both networks trained from the same seeds on the same batches.

    Attributes:
        before: Losses of the network as it was, (seeds, steps); infinite from where a run diverged.
        after: Losses of the changed one.
        rates: The rate of each.
    """

    before: Tensor
    after: Tensor
    rates: tuple[float, float]

    @property
    def ends(self) -> tuple[Tensor, Tensor]:
        """The loss at the end of each run: the mean over the last tenth of the steps."""
        return ends_of(self.before), ends_of(self.after)

    @property
    def gain(self) -> float:
        """How many times lower the loss of the changed network ends (geometric mean over seeds)."""
        return math.exp(float(np.mean(self._differences())))

    @property
    def p(self) -> float:
        """The probability of such a gain by chance: one-sided paired t-test of the logarithms."""
        from scipy import stats  # it takes longer to load than all of Skiplens

        found = self._differences()
        if np.ptp(found) == 0:
            return 0.0 if found[0] > 0 else 1.0
        return float(stats.ttest_1samp(found, 0.0, alternative="greater").pvalue)

    @property
    def is_proven(self) -> bool:
        """Whether the changed network trains better beyond chance."""
        return self.gain > 1 and self.p < LEVEL

    def _differences(self) -> np.ndarray:
        before, after = (np.log(np.clip(ends.double().numpy(), 1e-12, BEYOND)) for ends in self.ends)
        return before - after


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
) -> RacedRun:
    """Train a copy of `model` on the batches from number `first` on; the seed names their order and what is drawn."""
    device = next(model.parameters()).device
    clock = Provenance.begin({"optimizer": choice.name, "rate": rate, "steps": steps}, seed, device)
    source, _, _ = opened(data, steps, seed, device)
    with own_random_state(device), without_autocast(), torch.enable_grad():
        runner = Runner(model, source, TrainingLoss(loss), choice, seed)
        batches = source.batches(first)
        losses = [runner.first_gradient(next(batches))]
        mover = runner.begin(rate)
        while len(losses) < steps and not has_diverged(losses):
            piece = list(itertools.islice(batches, min(PIECE, steps - len(losses))))
            losses += runner.go_on(mover, len(losses), piece)
    kept = torch.full((steps,), math.inf, dtype=torch.float64)
    if not has_diverged(losses):
        kept[:] = torch.tensor(losses, dtype=torch.float64)
    else:
        finite = list(itertools.takewhile(lambda value: not has_diverged([losses[0], value]), losses))
        kept[: len(finite)] = torch.tensor(finite, dtype=torch.float64)
    return RacedRun(losses=kept, provenance=clock.end())
