"""Fit the forecast on trained networks: `python -m benchmarks.trainability.fit RUNS [--write]`.

RUNS is what `train.py` wrote: the loss of every step at every rate. The pilot is replayed from these losses, so it
costs nothing; each family is predicted by a fit on all others, and these residuals give the intervals.
"""

import argparse
import json
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from scipy.stats import spearmanr

from benchmarks.trainability.networks import NETWORKS, Network
from benchmarks.trainability.tasks import BATCH, TASKS, task
from benchmarks.trainability.train import LAST, RATES, build
from skiplens.graph.batch import as_batch
from skiplens.signal.layers import layer_states
from skiplens.task.measure import measure_task
from skiplens.trainability.extrapolation import (
    HIGHEST,
    LOWEST,
    Fit,
    Situation,
    candidates,
    fitted_line,
    trial_features,
)
from skiplens.trainability.forecast import TrainingLoss
from skiplens.trainability.pilot import Pilot, Trial, has_diverged, race
from skiplens.trainability.start import start_features

HORIZONS = (100, 200, 400)
RIDGE = 0.01
STORED = Path(__file__).parents[2] / "src/skiplens/trainability/fit.json"


@dataclass(frozen=True)
class Case:
    """All rates of one network with one optimizer and seed."""

    network: str
    family: str
    task: str
    optimizer: str
    seed: int
    losses: np.ndarray  # (rates, steps)
    early: np.ndarray  # the first ones where samples came in another order
    situation: Situation

    def end(self, steps: int) -> np.ndarray:
        """ln(loss / guess) around `steps` at each rate, cut to what is told apart."""
        with np.errstate(all="ignore"):
            means = self.losses[:, max(0, steps - LAST) : steps].mean(1)
            values = np.log(means / self.situation.guess)
        return np.clip(np.nan_to_num(values, nan=HIGHEST, posinf=HIGHEST), LOWEST, HIGHEST)

    def replayed(self, cost: int) -> Pilot:
        """The pilot that these losses would have made."""
        trials = [
            Trial(rate, [float(losses[0])]) for rate, losses in zip(RATES[self.optimizer], self.early, strict=True)
        ]
        for trial in trials:
            trial.diverged = has_diverged(trial.losses)
        rows = {id(trial): losses for trial, losses in zip(trials, self.early, strict=True)}
        spent = [1]

        def extend(trial: Trial, first: int, steps: int) -> None:
            trial.losses += [float(value) for value in rows[id(trial)][first : first + steps]]
            spent[0] += steps

        race(trials, cost, extend)
        return Pilot(tuple(trials), spent[0])


def cases(folder: Path) -> Iterator[Case]:
    """Everything that was trained, with readings of its start; the folder `early` has the first steps once more."""
    stored = folder / "starts.json"
    known = json.loads(stored.read_text()) if stored.exists() else {}
    for network in NETWORKS.values():
        work = task(network.task)
        for optimizer in RATES:
            file = folder / f"{optimizer}-{network.name}.npy"
            early = folder / "early" / file.name
            first = np.load(early if early.exists() else file) if file.exists() else ()
            for seed, losses in enumerate(np.load(file) if file.exists() else ()):
                key = f"{network.name} {seed}"
                known[key] = known[key] if key in known else start_of(network, seed)
                situation = Situation(work.guess, len(work.inputs) // BATCH, known[key])
                yield Case(network.name, network.family, network.task, optimizer, seed, losses, first[seed], situation)
    stored.write_text(json.dumps(known))


def start_of(network: Network, seed: int) -> dict[str, float]:
    """Readings of a network as it starts."""
    model = build(network, seed)
    batch = as_batch(next(task(network.task).batches(100 + seed)))
    told, states = measure_task(model, batch), layer_states(model, batch)
    return start_features(model, batch, TrainingLoss(None), told, states)


@dataclass(frozen=True)
class Row:
    """One thing to predict."""

    case: Case
    steps: int
    features: dict[str, float]
    target: float
    cost: int = 0


def trial_rows(all_cases: list[Case], cost: int) -> list[Row]:
    """The loss at every rate that went far enough."""
    rows = []
    for case in all_cases:
        pilot = case.replayed(cost)
        for trial in candidates(pilot):
            place = pilot.trials.index(trial)
            rows += [
                Row(
                    case,
                    steps,
                    trial_features(pilot, trial, replace(case.situation, start={}), steps),
                    float(case.end(steps)[place]),
                    cost,
                )
                for steps in HORIZONS
            ]
    return rows


def start_rows(all_cases: list[Case]) -> list[Row]:
    """The best loss of all rates, from readings of the start."""
    return [
        Row(case, HORIZONS[-1], dict(case.situation.start), float(case.end(HORIZONS[-1]).min())) for case in all_cases
    ]


def apart(rows: list[Row]) -> np.ndarray:
    """Every row predicted by a fit on the other families."""
    predicted = np.zeros(len(rows))
    for family in {row.case.family for row in rows}:
        fit = fitted([row for row in rows if row.case.family != family])
        for place, row in enumerate(rows):
            if row.case.family == family:
                predicted[place] = fit.predict(row.features)[0]
    return predicted


def fitted(rows: list[Row]) -> Fit:
    """The line through these rows."""
    return fitted_line([row.features for row in rows], np.array([row.target for row in rows]), RIDGE)


def with_residuals(fit: Fit, predicted: np.ndarray, targets: np.ndarray, bins: int = 5) -> Fit:
    """The fit with the 5 % and 95 % quantiles of residuals of families that it was not fitted on."""
    order = np.argsort(predicted)
    groups = np.array_split(order, bins)
    edges = np.array([predicted[group].mean() for group in groups])
    low, high = (
        np.array([np.quantile((targets - predicted)[group], level) for group in groups]) for level in (0.05, 0.95)
    )
    return replace(fit, edges=edges, low=np.minimum(low, 0), high=np.maximum(high, 0))


def advised(rows: list[Row], predicted: np.ndarray) -> list[int]:
    """Of all rates of a case the row with the lowest prediction."""
    best: dict[tuple[str, str, int], int] = {}
    for place, row in enumerate(rows):
        key = row.case.network, row.case.optimizer, row.case.seed
        if row.steps == HORIZONS[-1] and (key not in best or predicted[place] < predicted[best[key]]):
            best[key] = place
    return list(best.values())


def summary(rows: list[Row], predicted: np.ndarray, cost: int) -> str:
    """How good predictions of unseen families are at the last horizon."""
    chosen = advised(rows, predicted)
    parts = []
    for name in TASKS:
        for optimizer in RATES:
            mine = [p for p in chosen if rows[p].case.task == name and rows[p].case.optimizer == optimizer]
            if len(mine) > 4:
                best = [rows[p].case.end(HORIZONS[-1]).min() for p in mine]
                parts.append(f"{name} {optimizer} {spearmanr(predicted[mine], best).statistic:.3f}")
    ends = np.array([rows[p].case.end(HORIZONS[-1]).min() for p in chosen])
    targets = np.array([rows[p].target for p in chosen])
    near, error = np.mean(targets - ends <= np.log(1.5)), np.std(targets - predicted[chosen])
    bad, said = ends > np.log(0.25), predicted[chosen] > np.log(0.25)
    return (
        f"cost {cost}: Spearman {', '.join(parts)}; within 1.5 times the best {near:.3f}; error {error:.2f}; "
        f"bad: recall {np.mean(said[bad]):.2f}, precision {np.mean(bad[said]):.2f}"
    )


def main() -> None:
    """Fit, say how good it is, and store it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("runs", type=Path)
    parser.add_argument("--write", action="store_true")
    settings = parser.parse_args()
    found = list(cases(settings.runs))
    stored = {}
    rows = [row for cost in (20, 40, 70, 120, 200) for row in trial_rows(found, cost)]
    predicted, targets = apart(rows), np.array([row.target for row in rows])
    stored["steps"] = with_residuals(fitted(rows), predicted, targets).to_json()
    for cost in (20, 70, 200):
        some = [place for place, row in enumerate(rows) if row.cost == cost]
        print(summary([rows[place] for place in some], predicted[some], cost))
    rows = start_rows(found)
    predicted = apart(rows)
    stored["readings"] = with_residuals(fitted(rows), predicted, np.array([row.target for row in rows])).to_json()
    print(summary(rows, predicted, 0))
    if settings.write:
        STORED.write_text(json.dumps(stored, indent=1) + "\n")


if __name__ == "__main__":
    main()
