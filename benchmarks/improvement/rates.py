"""How good is the rate of a pilot? From the stored trainings: `python -m benchmarks.improvement.rates`.

The networks, their pilots and what became of them are those of `benchmarks/trainability`, which the forecast was fitted
to. Rates are chosen by a pilot and by trainings from start 1, and judged by where start 0 ends, over the best of all
seven rates there. The second table is a search in small: networks of one task stand for changes of one network.
"""

import math
from collections.abc import Callable, Iterator, Mapping
from typing import NamedTuple

import numpy as np

from benchmarks.trainability import pilots, truth
from benchmarks.trainability.networks import NETWORKS
from skiplens.trainability.extrapolation import Situation, advised, candidates, level_of

NEAR = 1.3
WHOLE, QUARTER = 40, 10  # windows of ten steps
CHANGES, JUDGED, DRAWS = 17, 4, 4000


class Case(NamedTuple):
    """A network with an optimizer: the rates of its pilot, best first, and its curves at each rate from both starts."""

    task: str
    optimizer: str
    rates: tuple[int, ...]  # places in the grid
    curves: tuple[list[np.ndarray], list[np.ndarray]]
    scores: tuple[float, ...]  # of pilots of 20 and of 70 steps

    def level(self, start: int, rate: int, until: int = WHOLE) -> float:
        """The mean of the last tenth of a training, or of the last fifth of its first quarter; infinite: diverged."""
        last = float(np.mean(self.curves[start][rate][max(0, until - (4 if until == WHOLE else 2)) : until]))
        return last if math.isfinite(last) else math.inf

    def ahead(self, rates: tuple[int, ...], until: int = WHOLE) -> int:
        """The rate that is lowest from start 1."""
        return min(rates, key=lambda rate: self.level(1, rate, until))


def cases() -> Iterator[Case]:
    """All that were trained from two starts and have pilots."""
    guesses, seen, curves = truth.guesses(), pilots.stored(), dict[tuple[str, str, int], list[np.ndarray]]()
    for run in truth.load():
        curves.setdefault((run.network, run.optimizer, run.seed), []).append(run.curve)
    for (name, optimizer, start), own in curves.items():
        if start or (name, optimizer, 1) not in curves or f"{optimizer} 0 70" not in seen.get(name, {}):
            continue
        situation = Situation(guesses[NETWORKS[name].task], math.inf)
        short, long = (seen[name][f"{optimizer} 0 {cost}"] for cost in (20, 70))
        best = advised(long, situation)
        if best is None:
            continue
        others = [place for place, trial in enumerate(long.trials) if trial is not best and not trial.diverged]
        others.sort(key=lambda place: (-len(long.trials[place].losses), long.trials[place].level()))
        rates = (next(place for place, trial in enumerate(long.trials) if trial is best), *others[:2])
        scores = (min((level_of(t, situation) for t in candidates(p)), default=math.inf) for p in (short, long))
        yield Case(NETWORKS[name].task, optimizer, rates, (own, curves[name, optimizer, 1]), tuple(scores))


def near(found: list[Case], choose: Callable[[Case], int]) -> float:
    """For how many the chosen rate ends within 1.3 times the best."""
    ends = [[case.level(0, rate) for rate in range(len(case.curves[0]))] for case in found]
    hits = [end[choose(case)] <= NEAR * min(end) for case, end in zip(found, ends, strict=True)]
    return float(np.mean(hits))


CHOICES: Mapping[str, Callable[[Case], int]] = {
    "the rate of the pilot": lambda case: case.rates[0],
    "the better of its two best": lambda case: case.ahead(case.rates[:2]),
    "and one of two more": lambda case: case.ahead((case.rates[0], case.ahead(case.rates[1:] or case.rates, QUARTER))),
    "the best of three": lambda case: case.ahead(case.rates),
}


def searched(found: list[Case], pilot: int) -> float:
    """How often the best of many networks is found within 1.3 times: pilots leave four, those of 70 steps decide."""
    tasks = {task: [case for case in found if case.task == task] for task in {case.task for case in found}}
    hits, random = [], np.random.default_rng(0)
    for _ in range(DRAWS):
        own = tasks[sorted(tasks)[random.integers(len(tasks))]]
        drawn = [own[place] for place in random.choice(len(own), CHANGES, replace=False)]
        left = sorted(drawn, key=lambda case: case.scores[pilot])[:JUDGED]
        ends = {id(case): min(case.level(0, rate) for rate in range(len(case.curves[0]))) for case in drawn}
        hits.append(ends[id(min(left, key=lambda case: case.scores[1]))] <= NEAR * min(ends.values()))
    return float(np.mean(hits))


if __name__ == "__main__":
    known = list(cases())
    print(f"{len(known)} networks with an optimizer, within {NEAR} times the loss of the best rate:")
    for words, choice in CHOICES.items():
        print(f"  {words}: {near(known, choice):.3f}")
    adam = [case for case in known if case.optimizer == "adam" and case.task in ("digits", "cifar10", "text")]
    for pilot, steps in enumerate((20, 70)):
        print(f"best of {CHANGES}, pilots of {steps} steps first: {searched(adam, pilot):.3f}")
