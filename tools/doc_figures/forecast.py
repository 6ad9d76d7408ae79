"""Draw the pictures of `docs/forecast.md`: `python tools/doc_figures/forecast.py [FOLDER]`, from the repository's root.

They come from what `benchmarks/trainability` has stored; nothing is trained.
"""

import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from skiplens.plots.figure import Figure, Line, Mark, Points, Reference

sys.path.insert(0, str(Path(__file__).parents[2]))

from benchmarks.trainability import measure, truth
from benchmarks.trainability.judging import loss_at_rate
from benchmarks.trainability.networks import NETWORKS
from benchmarks.trainability.table import TASKS, by_start, judged, truths_of
from skiplens.trainability.reading import LEARNT

LOWEST, HIGHEST = 1e-3, 10.0  # what is beyond is drawn there
GUESSES = {name: guess for name, guess in truth.guesses().items() if name in TASKS}
NAMES = {"digits": "digits", "cifar10": "colour images", "text": "text"}
RESULTS = Path(__file__).parents[2] / "benchmarks/trainability/results"


@dataclass(frozen=True)
class Sizes:
    """Which costs are shown."""

    cost: int = 70
    costs: tuple[int, ...] = (0, 20, 70)


def figures(sizes: Sizes) -> Iterator[Figure]:
    """All pictures; the name of each is the name of its file."""
    truths = truths_of(truth.load(), GUESSES)
    stored = measure.load(RESULTS / "forecasts.csv")
    rows = [row for row in stored if (row["network"], row["optimizer"], row["seed"]) in truths]
    yield against_truth([row for row in rows if row["method"] == f"forecast, {sizes.cost} steps"], truths, sizes.cost)
    yield by_cost(rows, truths, sizes)


def against_truth(rows, truths, cost: int) -> Figure:
    """A point for each network and optimizer: what was forecast, and what training at the advised rate gave."""
    marks: list[Mark] = [Line((LOWEST, HIGHEST), (LOWEST, HIGHEST), "forecast = truth", faint=True)]
    for task in GUESSES:
        own = [row for row in rows if NETWORKS[row["network"]].task == task]
        facts = [truths[row["network"], row["optimizer"], row["seed"]] for row in own]
        ends = [loss_at_rate(row["rate"], fact.rates, fact.losses) for row, fact in zip(own, facts, strict=True)]
        told = tuple(_within(row["loss"] / GUESSES[task]) for row in own)
        marks.append(Points(told, tuple(_within(end / GUESSES[task]) for end in ends), NAMES[task]))
    marks.append(Reference(LEARNT, "a quarter of a guess"))
    return Figure(
        name="against_truth",
        title=f"What {cost} steps say of 400",
        caption="Each point is a network with SGD or Adam, forecast by a fit that has seen no network of its family. "
        "Losses are in units of a guess; what diverged is at the upper edge.",
        x_label="forecast loss / guess",
        y_label="loss after 400 steps / guess",
        x_log=True,
        y_log=True,
        marks=tuple(marks),
    )


def by_cost(rows, truths, sizes: Sizes) -> Figure:
    """Rank correlation against cost, beside searches that others use."""
    stored = measure.load(RESULTS / "methods.csv")
    lines = {
        "forecast": [f"forecast, {cost} steps" for cost in sizes.costs],
        "successive halving": [f"halving, {cost} steps" for cost in (20, 70, 200)],
        "7 rates, 60 steps each": ["7 rates, 60 steps each"],
    }
    marks: list[Mark] = []
    for name, methods in lines.items():
        found = [_judged([row for row in (*rows, *stored) if row["method"] == method], truths) for method in methods]
        costs, values = zip(*found, strict=True)
        marks.append(Line(costs, values, name) if len(found) > 1 else Points(costs, values, name))
    return Figure(
        name="by_cost",
        title="Who knows the order of networks, and what it costs",
        caption="Spearman's rank correlation with the best loss after 400 steps, within a task; mean of three tasks "
        "and two optimizers.",
        x_label="training steps",
        y_label="rank correlation",
        x_log=True,
        marks=tuple(marks),
    )


def _judged(rows, truths) -> tuple[float, float]:
    found = judged(by_start(rows, truths), truths, ("sgd", "adam"))
    return found["cost"], found["mean"]


def _within(value: float) -> float:
    return min(HIGHEST, max(LOWEST, value)) if value == value else HIGHEST


if __name__ == "__main__":
    from drawing import draw  # beside this script

    draw(figures(Sizes()), "forecast_", __doc__)
