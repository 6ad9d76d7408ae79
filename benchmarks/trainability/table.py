"""The table of the benchmark of trainability, from what is stored: `python -m benchmarks.trainability.table`.

The truth is the final loss (mean of the last 40 of 400 steps) of every network at every rate of a grid.

* Spearman: score against minus the best final loss of the grid, both means over seeds, within a task; then their mean.
* area: under the curve of finding bad networks by a low score, the mean over tasks. A network is *bad* where its best
  final loss is above a quarter of the loss of a constant answer.
* precision, recall: of bad networks by the word, for each start; every word but "trains" calls it bad.
* coverage: how often the loss at the advised rate is in the interval that was forecast with 90 %.
* rate: how often the loss at the advised rate is at most 1.5 times the best of the grid. Between two rates of the grid
  the logarithm of the loss is taken linear in the logarithm of the rate; beyond the grid its end counts.
* cost: training steps that the method takes, all rates together.

Over both optimizers Spearman and area are the means of the two, and the others are over the starts of both. A method
that failed, or has no number, counts as wrong. Networks that a method has no row for are left out, and counted.
"""

import argparse
import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.trainability.judging import coverage, loss_at_rate, precision_recall, roc_area, spearman

FINAL_WINDOWS = 4
BAD_SHARE, NEAR_BEST = 0.25, 1.5
TASKS = ("digits", "cifar10", "text")
OPTIMIZERS = ("sgd", "adam")
ANY = "any"
Row = Mapping[str, Any]
Start = tuple[str, str, int]
"""Network, optimizer, seed."""


@dataclass(frozen=True)
class Truth:
    """What became of a start at every rate."""

    task: str
    rates: tuple[float, ...]
    losses: tuple[float, ...]
    guess: float

    @property
    def best(self) -> float:
        """The lowest final loss of the grid."""
        return min(self.losses)


def final_loss(curve: Sequence[float]) -> float:
    """The mean of the last windows of a curve, infinite for a training that diverged."""
    last = float(np.mean(np.asarray(curve, dtype=np.float64)[-FINAL_WINDOWS:]))
    return last if math.isfinite(last) else math.inf


def truths_of(runs: Iterable[Any], guesses: Mapping[str, float]) -> dict[Start, Truth]:
    """The runs of `truth.load()` on tasks whose guess is given, by start, rates in order."""
    found: dict[Start, list[Any]] = defaultdict(list)
    for run in runs:
        if run.task in guesses:
            found[run.network, run.optimizer, run.seed].append(run)
    truths = {}
    for start, group in found.items():
        group.sort(key=lambda run: run.rate)
        losses = tuple(final_loss(run.curve) for run in group)
        rates = tuple(float(run.rate) for run in group)
        truths[start] = Truth(group[0].task, rates, losses, guesses[group[0].task])
    return truths


def by_start(rows: Iterable[Row], truths: Mapping[Start, Truth]) -> dict[Start, Row]:
    """A method's rows; one that knows no optimizer stands for each."""
    found = {}
    for row in rows:
        for optimizer in OPTIMIZERS if row["optimizer"] == ANY else (row["optimizer"],):
            start = row["network"], optimizer, row["seed"]
            if start in truths:
                found[start] = row
    return found


def ordering(
    said: Mapping[Start, Row], truths: Mapping[Start, Truth], task: str, optimizer: str
) -> tuple[float, float]:
    """Spearman and area within a task, over networks; scores and best losses are means over seeds."""
    starts = [start for start in said if start[1] == optimizer and truths[start].task == task]
    networks = sorted({start[0] for start in starts})
    scores, losses = [], []
    for name in networks:
        own = [start for start in starts if start[0] == name]
        scores.append(_worst_if_missing(float(np.mean([_worst_if_missing(said[start]["score"]) for start in own]))))
        losses.append(float(np.mean([truths[start].best for start in own])))
    if not networks:
        return math.nan, math.nan
    bad = np.array(losses) > BAD_SHARE * truths[starts[0]].guess
    return spearman(scores, -np.array(losses)), roc_area(-np.array(scores), bad)


def _worst_if_missing(score: float) -> float:
    return -math.inf if math.isnan(score) else score


def judged(said: Mapping[Start, Row], truths: Mapping[Start, Truth], optimizers: Sequence[str]) -> dict[str, float]:
    """The numbers of one row of the table; NaN where a method does not say what is asked."""
    found: dict[str, float] = {}
    pairs = {(task, name): ordering(said, truths, task, name) for task, name in product(TASKS, optimizers)}
    for task in TASKS:
        found[task] = _mean(pairs[task, name][0] for name in optimizers)
    found["mean"] = _mean(found[task] for task in TASKS)
    found["area"] = _mean(area for _, area in pairs.values())
    starts = [start for start in said if start[1] in optimizers]
    rows, facts = [said[start] for start in starts], [truths[start] for start in starts]
    found |= dict.fromkeys(("precision", "recall", "coverage", "rate"), math.nan)
    if any(row["word"] and not row["word"].startswith("failed") for row in rows):
        called = [row["word"] != "trains" and not row["word"].startswith("failed") for row in rows]
        bad = [fact.best > BAD_SHARE * fact.guess for fact in facts]
        found["precision"], found["recall"] = precision_recall(called, bad)
    if any(not math.isnan(row["low"]) for row in rows):
        ends = [_end(row, fact) for row, fact in zip(rows, facts, strict=True)]
        found["coverage"] = coverage([row["low"] for row in rows], [row["high"] for row in rows], ends)
    if any(not math.isnan(row["rate"]) for row in rows):
        near = [
            loss_at_rate(row["rate"], fact.rates, fact.losses) <= NEAR_BEST * fact.best
            for row, fact in zip(rows, facts, strict=True)
        ]
        found["rate"] = float(np.mean(near))
    found["cost"] = _mean(row["cost"] for row in rows)
    found["networks"] = len({start[0] for start in starts})
    found["failed"] = sum(row["word"].startswith("failed") for row in rows)
    return found


def _end(row: Row, fact: Truth) -> float:
    """What the interval is about: the loss at the advised rate, or the best one where no rate was advised."""
    return fact.best if math.isnan(row["rate"]) else loss_at_rate(row["rate"], fact.rates, fact.losses)


def _mean(values: Iterable[float]) -> float:
    kept = [value for value in values if not math.isnan(value)]
    return float(np.mean(kept)) if kept else math.nan


COLUMNS = {
    **dict.fromkeys((*TASKS, "mean", "area", "precision", "recall", "coverage", "rate"), "{:.2f}"),
    "cost": "{:.0f}",
    "networks": "{:.0f}",
}


def make_table(rows: Sequence[Row], truths: Mapping[Start, Truth], optimizers: Sequence[str]) -> str:
    """A Markdown table with a line for each method, in the order in which they are stored."""
    lines = ["| method | " + " | ".join(COLUMNS) + " |", "|---|" + "---:|" * len(COLUMNS)]
    notes = []
    for method in dict.fromkeys(row["method"] for row in rows):
        said = by_start((row for row in rows if row["method"] == method), truths)
        found = judged(said, truths, optimizers)
        if not found["networks"]:
            continue
        shown = [_shown(found[column], form) for column, form in COLUMNS.items()]
        lines.append(f"| {method} | " + " | ".join(shown) + " |")
        if found["failed"]:
            notes.append(f"{method} failed on {found['failed']:.0f} starts.")
    return "\n".join([*lines, *([""] if notes else []), *notes])


def _shown(value: float, form: str) -> str:
    return "–" if math.isnan(value) else form.format(value)


def main() -> None:
    """Print the table for each optimizer and for both."""
    from benchmarks.trainability import measure, truth

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--stored", type=Path, default=measure.STORED, help="methods.csv")
    parser.add_argument("--forecasts", type=Path, default=Path(__file__).parent / "results" / "forecasts.csv")
    settings = parser.parse_args()
    order = {method: place for place, method in enumerate(measure.METHODS)}
    stored = [row for row in measure.load(settings.stored) if not row["method"].startswith("forecast")]
    rows = sorted([*measure.load(settings.forecasts), *stored], key=lambda row: order.get(row["method"], len(order)))
    if not rows:
        raise SystemExit(f"{settings.stored} has no rows. Run `python -m benchmarks.trainability.measure` first.")
    truths = truths_of(truth.load(), {name: guess for name, guess in truth.guesses().items() if name in TASKS})
    for title, optimizers in (("SGD with momentum", ("sgd",)), ("Adam", ("adam",)), ("Both", OPTIMIZERS)):
        print(f"\n{title}\n\n{make_table(rows, truths, optimizers)}")


if __name__ == "__main__":
    main()
