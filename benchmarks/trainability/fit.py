"""Fit the forecast on trained networks: `python -m benchmarks.trainability.fit [--write]`.

It takes what is stored: how trainings ended (`truth.py`) and what pilots saw (`pilots.py`). Every family is forecast by
a fit on all other families, its intervals too; these forecasts are kept in `results/forecasts.csv` for the table. With
`--write` the fit on all families becomes that of the package.
"""

import argparse
import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.trainability import pilots, truth
from benchmarks.trainability.measure import COLUMNS
from benchmarks.trainability.networks import NETWORKS
from benchmarks.trainability.pool import Row, append_rows
from benchmarks.trainability.table import final_loss
from benchmarks.trainability.tasks import BATCH, task
from benchmarks.trainability.train import STEPS
from skiplens.trainability.extrapolation import (
    HIGHEST,
    LOWEST,
    Fit,
    Situation,
    advised,
    trial_features,
)
from skiplens.trainability.forecast import READINGS, Outlook, unseen
from skiplens.trainability.pilot import Pilot

RIDGE = 0.003
ROUNDS, NEAR = 50, 0.02  # of the search for a line, and what counts as no miss
BINS = 5
STORED = Path(__file__).parents[2] / "src/skiplens/trainability/fit.json"
FORECASTS = Path(__file__).parent / "results" / "forecasts.csv"


def fitted_line(rows: Sequence[Mapping[str, float]], targets: np.ndarray, ridge: float) -> Fit:
    """The line in the features that misses `targets` by the least absolute value in sum, without residuals yet.

    Half of all targets are above it, so that few that are far off do not move it. It is found by least squares with
    weights 1 / |what is missed|, again and again.
    """
    names = tuple(name for name in rows[0] if not all(math.isnan(row[name]) for row in rows))
    table = np.array([[row[name] for name in names] for row in rows])
    centres, scales = np.nanmean(table, 0), np.nanstd(table, 0) + 1e-6
    standard = (np.where(np.isnan(table), centres, table) - centres) / scales
    columns = np.column_stack([standard, np.ones(len(rows))])
    penalty = np.diag([ridge * len(rows)] * len(names) + [0.0])
    counts, found = np.ones(len(rows)), np.zeros(len(names) + 1)
    for _ in range(ROUNDS):
        weighed = columns * counts[:, None]
        found = np.linalg.solve(columns.T @ weighed + penalty, weighed.T @ targets)
        counts = 1 / np.maximum(np.abs(targets - columns @ found), NEAR)
        counts /= counts.mean()
    nothing = np.zeros(1)
    return Fit(names, centres, scales, found[:-1], float(found[-1]), nothing, nothing, nothing)


def as_json(fit: Fit) -> dict[str, Any]:
    """The fit in words that JSON has, to six digits."""
    values = {name: getattr(fit, name) for name in ("centres", "scales", "weights", "edges", "low", "high")}
    rounded = {name: [float(f"{v:.6g}") for v in array] for name, array in values.items()}
    return {"names": list(fit.names), "offset": float(f"{fit.offset:.6g}"), **rounded}


@dataclass(frozen=True)
class Case:
    """One start of a network with one optimizer: how it ended at each rate, and what pilots saw of it."""

    network: str
    family: str
    task: str
    optimizer: str
    seed: int
    ends: dict[float, float]
    pilots: dict[int, Pilot]
    situation: Situation

    def level(self, rate: float) -> float:
        """ln(loss / guess) at the end of a training, cut to what is told apart."""
        with np.errstate(all="ignore"):
            value = np.log(
                self.ends[min(self.ends, key=lambda known: abs(np.log(known / rate)))] / self.situation.guess
            )
        return float(np.clip(value, LOWEST, HIGHEST))

    def piloted(self, cost: int) -> Situation:
        """The situation, with the share of all samples that a pilot met."""
        share = pilots.small(self.task, self.optimizer, cost).share
        return replace(self.situation, share=share)

    @property
    def best(self) -> float:
        """The lowest level of all rates."""
        return min(self.level(rate) for rate in self.ends)


def cases() -> Iterator[Case]:
    """Everything that was both trained and piloted."""
    ends: dict[tuple[str, str, int], dict[float, float]] = {}
    for run in truth.load():
        ends.setdefault((run.network, run.optimizer, run.seed), {})[run.rate] = final_loss(run.curve)
    seen = pilots.stored()
    for (name, optimizer, seed), found in ends.items():
        own = seen.get(name, {})
        tried = {cost: own[key] for cost in pilots.COSTS if (key := f"{optimizer} {seed} {cost}") in own}
        if tried:
            network, work = NETWORKS[name], task(NETWORKS[name].task)
            start = Situation(work.guess, len(work.inputs) / BATCH, own[f"start {seed}"])
            yield Case(name, network.family, network.task, optimizer, seed, found, tried, start)


@dataclass(frozen=True)
class Example:
    """One thing to predict."""

    case: Case
    features: dict[str, float]
    target: float


def of_trials(case: Case) -> list[Example]:
    """The end at the rate that is advised, at each cost."""
    examples = []
    for cost, pilot in case.pilots.items():
        trial = advised(pilot, case.situation)
        if trial is not None:
            features = trial_features(pilot, trial, case.piloted(cost), STEPS)
            examples.append(Example(case, features, case.level(trial.rate)))
    return examples


def of_start(case: Case) -> list[Example]:
    """The best end of all rates, from readings of the start."""
    return [Example(case, {"trouble": case.situation.start["trouble"]}, case.best)]


def line(examples: Sequence[Example]) -> Fit:
    """The line through these examples."""
    targets = np.array([example.target for example in examples])
    return fitted_line([example.features for example in examples], targets, RIDGE)


def fitted(examples: Sequence[Example]) -> Fit:
    """The line through all examples, with the 5 % and 95 % quantiles of what lines through other families miss by."""
    predicted, missed = [], []
    for family in sorted({example.case.family for example in examples}):
        other = line([example for example in examples if example.case.family != family])
        own = [example for example in examples if example.case.family == family]
        values = [other.predict(example.features)[0] for example in own]
        predicted += values
        missed += [example.target - value for example, value in zip(own, values, strict=True)]
    groups = np.array_split(np.argsort(predicted), BINS)
    edges = np.array([np.mean(np.array(predicted)[group]) for group in groups])
    low, high = (np.array([np.quantile(np.array(missed)[group], level) for group in groups]) for level in (0.05, 0.95))
    return replace(line(examples), edges=edges, low=np.minimum(low, 0), high=np.maximum(high, 0))


def forecasts(all_cases: Sequence[Case]) -> Iterator[Row]:
    """What is forecast of every start, by fits that have not seen its family."""
    for family in sorted({case.family for case in all_cases}):
        others = [case for case in all_cases if case.family != family]
        by_trials = fitted([example for case in others for example in of_trials(case)])
        by_start = fitted([example for case in others for example in of_start(case)])
        for case in all_cases:
            if case.family != family:
                continue
            for cost, pilot in case.pilots.items():
                yield _row(case, cost, Outlook(pilot, case.piloted(cost), STEPS, by_trials).fields() | {"cost": cost})
            yield _row(case, 0, unseen(case.situation, 1.0, STEPS, by_start) | {"cost": READINGS})


def _row(case: Case, cost: int, told: dict) -> Row:
    low, high = told["interval"]
    numbers = {"score": -told["score"], "low": low, "high": high} | {k: told[k] for k in ("loss", "rate", "cost")}
    named = {"method": f"forecast, {cost} steps", "network": case.network, "optimizer": case.optimizer}
    return named | {"seed": case.seed, "word": told["word"]} | {k: f"{value:.7g}" for k, value in numbers.items()}


def main() -> None:
    """Forecast every family from the others; fit on all, and store that."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--write", action="store_true", help="replace the fit of the package")
    settings = parser.parse_args()
    found = list(cases())
    written = sum(map(len, append_rows(FORECASTS, COLUMNS, [list(forecasts(found))], keep=lambda row: False)))
    print(f"{written} forecasts of {len({case.network for case in found})} networks are in {FORECASTS}")
    kinds = {"steps": of_trials, "readings": of_start}
    stored = {k: as_json(fitted([example for case in found for example in of(case)])) for k, of in kinds.items()}
    for kind, values in stored.items():
        print(kind, dict(zip(values["names"], values["weights"], strict=True)))
    if settings.write:
        STORED.write_text(json.dumps(stored, indent=1) + "\n")


if __name__ == "__main__":
    main()
