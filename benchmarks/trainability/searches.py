"""Searches for a learning rate that others use, each with what it costs in training steps.

A search is a function (model, task, optimizer, seed) -> `Found`. It trains copies, so the model is as it was. Its
score, by which networks are compared, is minus the loss that it saw at the rate it advises, over the last steps.
"""

import copy
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
import torch
from torch import Tensor, nn

from benchmarks.trainability.proxies import loss_of
from benchmarks.trainability.tasks import Task
from benchmarks.trainability.train import BETAS, EPSILON, MOMENTUM, RATES
from skiplens.base.preserve_state import preserve_state

WINDOW = 10
"""Steps over which a loss is averaged, at most; of a short training the last third."""
FIRST_RATE, LAST_RATE, RAMP_STEPS = 1e-7, 10.0, 100
SMOOTHING, STOP = 0.98, 4.0
SKIP_FIRST, SKIP_LAST = 10, {"valley": 5, "steepest": 1}


@dataclass(frozen=True)
class Found:
    """The rate that is advised, the score of the network (more is better), and the steps that it took."""

    rate: float
    score: float
    cost: int


Search = Callable[[nn.Module, Task, str, int], Found]


def make_optimizer(name: str, model: nn.Module, rate: float) -> torch.optim.Optimizer:
    """The optimizers of the benchmark: gradient descent with momentum 0.9, or Adam."""
    if name == "sgd":
        return torch.optim.SGD(model.parameters(), rate, momentum=MOMENTUM)
    if name == "adam":
        return torch.optim.Adam(model.parameters(), rate, betas=BETAS, eps=EPSILON)
    raise ValueError(f"There is no optimizer {name!r}; there are sgd and adam.")


class Training:
    """One copy of a network that is trained at one rate, and can go on."""

    def __init__(self, model: nn.Module, task: Task, optimizer: str, rate: float, seed: int) -> None:
        self.model, self.rate = copy.deepcopy(model).train(), rate
        self.optimizer = make_optimizer(optimizer, self.model, rate)
        self.batches: Iterator[tuple[Tensor, Tensor]] = task.batches(seed)
        self.losses: list[float] = []

    def run(self, steps: int) -> None:
        """Take steps; after a loss that is not finite they are only counted."""
        for _ in range(steps):
            self.step()

    def step(self) -> float:
        """One step; the loss before it."""
        if self.losses and not math.isfinite(self.losses[-1]):
            self.losses.append(math.inf)
            return math.inf
        loss = loss_of(self.model, *next(self.batches))
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        self.losses.append(loss.item())
        return self.losses[-1]

    @property
    def reached(self) -> float:
        """The mean of the last losses, infinite for one that diverged."""
        window = min(WINDOW, math.ceil(len(self.losses) / 3))
        last = float(np.mean(self.losses[-window:])) if self.losses else math.inf
        return last if math.isfinite(last) else math.inf


def successive_halving(
    model: nn.Module, task: Task, optimizer: str, seed: int, *, cost: int, rates: Sequence[float] | None = None
) -> Found:
    """Train all rates, keep the better half, train on, until one is left (Jamieson and Talwalkar 2016).

    Each round may cost the same, so the steps of one network double from round to round; `cost` is never exceeded. Two
    steps are the fewest that tell rates apart: where there are not enough for all, every second rate is tried.
    """
    tried = [float(rate) for rate in (RATES[optimizer] if rates is None else rates)]
    while len(tried) > 2 and cost < 2 * len(tried) * math.ceil(math.log2(len(tried))):
        tried = tried[::2]
    with preserve_state(model):
        left = [Training(model, task, optimizer, rate, seed) for rate in tried]
        rounds, spent = max(1, math.ceil(math.log2(len(left)))), 0
        for number in range(rounds):
            steps = (cost - spent) // ((rounds - number) * len(left))
            for training in left:
                training.run(steps)
            spent += steps * len(left)
            left = sorted(left, key=lambda training: training.reached)[: max(1, math.ceil(len(left) / 2))]
    return Found(left[0].rate, -left[0].reached, spent)


def short_grid(
    model: nn.Module, task: Task, optimizer: str, seed: int, *, steps: int = 60, rates: Sequence[float] | None = None
) -> Found:
    """Train every rate for some steps and take the one with the lowest loss over the last ten."""
    found = []
    with preserve_state(model):
        for rate in RATES[optimizer] if rates is None else rates:
            training = Training(model, task, optimizer, float(rate), seed)
            training.run(steps)
            found.append((training.reached, training.rate))
    loss, rate = min(found)
    return Found(rate, -loss, steps * len(found))


def range_test(model: nn.Module, task: Task, optimizer: str, seed: int, *, rule: str = "valley") -> Found:
    """A learning-rate range test (Smith 2017) as fastai runs it, with the suggestion of fastai or of Lightning.

    The rate grows from 1e-7 to 10 over 100 steps; the test ends when the smoothed loss is above four times its best.
    `valley` leaves out the first 10 and the last 5 points and goes halfway through the middle third of the longest
    falling subsequence. `steepest` leaves out 10 and 1 and takes where the smoothed loss falls most between points.
    The score is minus the least smoothed loss.
    """
    with preserve_state(model):
        rates, losses = ramp(Training(model, task, optimizer, FIRST_RATE, seed))
    place = suggestion(rule, losses)
    rate = rates[place] if place is not None else math.nan
    return Found(rate, -min((x for x in losses if math.isfinite(x)), default=math.inf), len(rates))


def ramp(training: Training) -> tuple[list[float], list[float]]:
    """The rates that were tried and the smoothed losses, bias-corrected as in fastai."""
    rates: list[float] = []
    smoothed: list[float] = []
    mean = 0.0
    for number in range(RAMP_STEPS):
        rate = FIRST_RATE * (LAST_RATE / FIRST_RATE) ** (number / RAMP_STEPS)
        for group in training.optimizer.param_groups:
            group["lr"] = rate
        mean = SMOOTHING * mean + (1 - SMOOTHING) * training.step()
        rates.append(rate)
        smoothed.append(mean / (1 - SMOOTHING ** (number + 1)))
        if not smoothed[-1] <= STOP * min(smoothed):  # also where it is not a number
            break
    return rates, smoothed


def suggestion(rule: str, losses: Sequence[float]) -> int | None:
    """The place in the range test that a rule picks; None where too few points are left."""
    kept = list(losses[SKIP_FIRST : len(losses) - SKIP_LAST[rule]])
    cut = next((place for place, loss in enumerate(kept) if not math.isfinite(loss)), len(kept))
    kept = kept[:cut]
    if len(kept) < 2:
        return None
    if rule == "steepest":
        return SKIP_FIRST + int(np.argmin(np.gradient(kept)))
    lengths = falling_lengths(kept)
    end = int(np.argmax(lengths))
    start = end - lengths[end] if lengths[end] > 1 else 0
    third = (end - start) / 3
    # Where falling losses fill all points the start is one before the first, as in fastai.
    return SKIP_FIRST + max(start + int(third) + int(third / 2), 0)


def falling_lengths(losses: Sequence[float]) -> list[int]:
    """For each place, the length of the longest subsequence of ever smaller losses that ends there."""
    lengths: list[int] = []
    for place, loss in enumerate(losses):
        longer = (lengths[before] for before in range(place) if losses[before] > loss)
        lengths.append(1 + max(longer, default=0))
    return lengths


SEARCHES: dict[str, Search] = {
    "halving, 20 steps": partial(successive_halving, cost=20),
    "halving, 70 steps": partial(successive_halving, cost=70),
    "halving, 200 steps": partial(successive_halving, cost=200),
    "7 rates, 60 steps each": short_grid,
    "range test, valley": partial(range_test, rule="valley"),
    "range test, steepest": partial(range_test, rule="steepest"),
}
