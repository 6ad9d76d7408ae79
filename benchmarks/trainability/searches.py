"""Searches for a learning rate that others use, each with what it costs in training steps.

A search looks at losses: of short trainings at the rates of the grid, or of one training whose rate grows. Its score,
by which networks are compared, is minus the loss that it saw at the rate it advises, over the last steps.
"""

import copy
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import islice

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from benchmarks.trainability.networks import Network
from benchmarks.trainability.proxies import loss_of
from benchmarks.trainability.tasks import Task
from benchmarks.trainability.train import BETAS, EPSILON, MOMENTUM, RATES, Grid, build
from skiplens.base.preserve_state import preserve_state

GRID_STEPS = 60
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


def grid_losses(network: Network, task: Task, optimizer: str, seed: int, batches: int) -> NDArray[np.float64]:
    """Losses (rates, steps) of short trainings at all rates of the grid, from one start.

    On a GPU all rates are one program; on a CPU they are trained one by one, which is up to twice as quick there.
    """
    stream = task.batches(batches)
    if task.inputs.device.type == "cuda":
        grid = Grid(network, optimizer, (seed,), str(task.inputs.device))
        found = [grid.step(inputs[None], targets[None])[0] for inputs, targets in islice(stream, GRID_STEPS)]
        return torch.stack(found, 1).double().cpu().numpy()
    models = [build(network, seed) for _ in RATES[optimizer]]
    steppers = [make_optimizer(optimizer, model, rate) for model, rate in zip(models, RATES[optimizer], strict=True)]
    return np.array(
        [
            [take_step(model, stepper, batch) for model, stepper in zip(models, steppers, strict=True)]
            for batch in islice(stream, GRID_STEPS)
        ]
    ).T


def take_step(model: nn.Module, stepper: torch.optim.Optimizer, batch: tuple[Tensor, Tensor]) -> float:
    """One step; the loss before it."""
    loss = loss_of(model, *batch)
    stepper.zero_grad()
    loss.backward()
    stepper.step()
    return loss.item()


def reached(losses: Sequence[float] | NDArray[np.float64]) -> float:
    """The mean of the last losses, infinite for a training that diverged."""
    if not len(losses) or not np.isfinite(losses).all():
        return math.inf
    return float(np.mean(losses[-min(WINDOW, math.ceil(len(losses) / 3)) :]))


def successive_halving(rates: Sequence[float], losses: NDArray[np.float64], *, cost: int) -> Found:
    """Train all rates, keep the better half, train on, until one is left (Jamieson and Talwalkar 2016).

    Each round may cost the same, so the steps of one network double from round to round; `cost` is never exceeded. Two
    steps are the fewest that tell rates apart: where there are not enough for all, every second rate is tried.
    """
    left = list(range(len(rates)))
    while len(left) > 2 and cost < 2 * len(left) * math.ceil(math.log2(len(left))):
        left = left[::2]
    rounds, steps, spent = max(1, math.ceil(math.log2(len(left)))), 0, 0
    for number in range(rounds):
        more = (cost - spent) // ((rounds - number) * len(left))
        steps, spent = steps + more, spent + more * len(left)
        if steps > losses.shape[1]:
            raise ValueError(f"{cost} steps need {steps} losses of a rate; there are {losses.shape[1]}.")
        ends = {place: reached(losses[place, :steps]) for place in left}
        left = sorted(left, key=lambda place: ends[place])[: max(1, math.ceil(len(left) / 2))]
    return Found(float(rates[left[0]]), -ends[left[0]], spent)


def short_grid(rates: Sequence[float], losses: NDArray[np.float64]) -> Found:
    """Train every rate for some steps and take the one with the lowest loss over the last ten."""
    loss, rate = min((reached(curve), float(rate)) for curve, rate in zip(losses, rates, strict=True))
    return Found(rate, -loss, losses.size)


def range_test(rates: Sequence[float], losses: Sequence[float], *, rule: str) -> Found:
    """The suggestion of fastai or of Lightning, from a range test (Smith 2017) as fastai runs it: see `ramp`.

    `valley` leaves out the first 10 and the last 5 points and goes halfway through the middle third of the longest
    falling subsequence. `steepest` leaves out 10 and 1 and takes where the smoothed loss falls most between points.
    The score is minus the least smoothed loss.
    """
    place = suggestion(rule, losses)
    rate = rates[place] if place is not None else math.nan
    return Found(rate, -min((loss for loss in losses if math.isfinite(loss)), default=math.inf), len(rates))


def make_optimizer(name: str, model: nn.Module, rate: float) -> torch.optim.Optimizer:
    """The optimizers of the benchmark: gradient descent with momentum 0.9, or Adam."""
    if name == "sgd":
        return torch.optim.SGD(model.parameters(), rate, momentum=MOMENTUM)
    if name == "adam":
        return torch.optim.Adam(model.parameters(), rate, betas=BETAS, eps=EPSILON)
    raise ValueError(f"There is no optimizer {name!r}; there are sgd and adam.")


def ramp(model: nn.Module, task: Task, optimizer: str, batches: int) -> tuple[list[float], list[float]]:
    """The rates that a range test tried and its smoothed losses, bias-corrected; a copy of the model is trained.

    The rate grows from 1e-7 to 10 over 100 steps; the test ends when the smoothed loss is above four times its best.
    """
    rates: list[float] = []
    smoothed: list[float] = []
    mean, stream = 0.0, task.batches(batches)
    with preserve_state(model):
        trained = copy.deepcopy(model).train()
        stepper = make_optimizer(optimizer, trained, FIRST_RATE)
        for number in range(RAMP_STEPS):
            rates.append(FIRST_RATE * (LAST_RATE / FIRST_RATE) ** (number / RAMP_STEPS))
            stepper.param_groups[0]["lr"] = rates[-1]
            mean = SMOOTHING * mean + (1 - SMOOTHING) * take_step(trained, stepper, next(stream))
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


GRID_SEARCHES: dict[str, Callable[[Sequence[float], NDArray[np.float64]], Found]] = {
    "halving, 20 steps": partial(successive_halving, cost=20),
    "halving, 70 steps": partial(successive_halving, cost=70),
    "halving, 200 steps": partial(successive_halving, cost=200),
    "7 rates, 60 steps each": short_grid,
}
RANGE_TESTS = {f"range test, {rule}": partial(range_test, rule=rule) for rule in SKIP_LAST}
