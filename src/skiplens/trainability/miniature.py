"""A training in small: parts of batches, and so few of them that each comes as often as in the whole training.

How low a training ends depends on how many steps it takes and on how often it meets each sample again. A pilot that
takes a part of a batch a step takes more of them for the same work; that goes round among few samples learns them by
heart as far as the whole training will learn all.
"""

import itertools
import math
from collections.abc import Iterator

from torch import Tensor

from skiplens.graph.batch import Batch
from skiplens.graph.pieces import cut
from skiplens.trainability.pilot import rounds
from skiplens.training.source import Source

PARTS = 4  # of a batch, of which a step of a pilot takes one
LEAST_SAMPLES = 8  # of a part: batch norm and the noise of a step want some
FEWEST, MOST = 4, 64  # parts that a pilot goes round among
MOST_BATCHES = 32  # that are read for it


class Miniature(Source):
    """Parts of the first batches of a source, the same ones again and again.

    Attributes:
        parts: How many of them are one batch.
        cost: Steps that the pilot may take.
        longest: Steps of the trial that goes furthest.
        steps_per_epoch: Parts that there are.
        share: How much of all samples they hold; one where samples never come again.
    """

    def __init__(self, source: Source, first: Batch, *, steps: int, cost: int, rates: int, epoch: float) -> None:
        self.source = source
        self.parts = max(1, min(PARTS, first.samples // LEAST_SAMPLES))
        self.size = -(-first.samples // self.parts)
        self.cost = cost * self.parts
        while self._longest(rates) > steps and self.cost > rates + 1:  # no trial goes beyond the end
            self.cost = max(rates + 1, self.cost * steps // self._longest(rates))
        self.longest = self._longest(rates)
        wanted = self.longest * min(1.0, epoch / steps)
        self.steps_per_epoch = int(min(MOST, max(FEWEST, round(wanted)), self.parts * epoch))
        self.read = min(self.steps_per_epoch, source.steps_per_epoch, MOST_BATCHES)
        self.share = min(1.0, self.steps_per_epoch / (self.parts * epoch)) if math.isfinite(epoch) else 1.0
        self.kept: list[Batch] = []

    def _longest(self, rates: int) -> int:
        return 1 + sum(taken for _, taken in rounds(self.cost, rates))

    def batches(self, start: int) -> Iterator[Batch]:
        """The parts from number `start` on without end."""
        self.kept = self.kept or self._pool()
        return itertools.islice(itertools.cycle(self.kept), start % len(self.kept), None)

    def _pool(self) -> list[Batch]:
        """As few parts of each batch as will do, the first ones of all batches before the second ones."""
        each = -(-self.steps_per_epoch // self.read)
        parts = [self._parts(batch)[:each] for batch in itertools.islice(self.source.batches(0), self.read)]
        turns = [part for turn in itertools.zip_longest(*parts) for part in turn if part is not None]
        return turns[: self.steps_per_epoch]

    def _parts(self, batch: Batch) -> list[Batch]:
        """Parts that are not cut short; copies, so that the rest of the batch need not be kept."""
        whole = [part for part in cut(batch, self.size) if part.samples == self.size]
        return [part.map(Tensor.clone) for part in whole] if len(whole) > 1 else whole

    def _epoch(self, epoch: int, first: int) -> Iterator[Batch]:
        """The parts of a round from number `first` on."""
        return itertools.islice(self.batches(0), first, self.steps_per_epoch)
